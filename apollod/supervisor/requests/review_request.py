"""What people decide about examples."""

import anyio.to_thread

from apollod.adapters.journal.example_places import states_of
from apollod.adapters.sources.given_lines import batch_of_lines
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.explain import reason
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg

_LATER = {
    "trained": "it was learned; `apollod ctl rollback` takes steps back",
    "pending": "it waits to be learned already",
    "undone": "its step was taken back; `apollod ctl relearn` asks for it again",
    "withdrawn": "it was withdrawn; `apollod ctl relearn` asks for it again",
    "rejected": "it cannot be learned from",
    "skipped": "its step wrote nothing",
}


async def decide(daemon: Daemon, request: msg.DecideRequest) -> msg.Answer:
    """Answered when it is recorded; each decision that came too late is named with the state of its example."""
    by = request.by or "ctl"
    wanted = tuple(inp.Decision(one.example, one.choice, one.reason, one.only_held) for one in request.decisions)
    recorded = await daemon.loop.submit(inp.DecisionsGiven(wanted, by))
    done: dict[str, list[str]] = {"approved": [], "declined": [], "held": []}
    for r in recorded:
        match r.event:
            case ev.ExampleApproved(example=example):
                done["approved"].append(example)
            case ev.ExampleDeclined(example=example):
                done["declined"].append(example)
            case ev.ExampleHeld(example=example):
                done["held"].append(example)
    decided = {example for examples in done.values() for example in examples}
    refused = await _refused(daemon, [one.example for one in wanted if one.example not in decided])
    return msg.Reply({"schema_version": 1, **done, "refused": refused})


async def edit(daemon: Daemon, request: msg.EditRequest) -> msg.Answer:
    """Answered with the id of what is learned instead, when it is recorded."""
    kept_in, longest = daemon.config.state_dir / "quarantine", daemon.config.inbox.max_line_bytes
    try:
        batch = await anyio.to_thread.run_sync(
            batch_of_lines, [request.record], f"edit:{request.example}", kept_in, longest
        )
    except OSError as error:
        return msg.Failure(f"nothing can be kept in {kept_in}: {reason(error)}", "look at the disk", retryable=True)
    (line,) = batch.lines
    if not line.example:
        return msg.Failure(f"what was written is no example: {line.reason}", "nothing was changed")
    if line.example == request.example:
        return msg.Failure("nothing was changed in it", "approve it, or leave it held")
    given = inp.EditGiven(request.example, line, request.by or "ctl", request.only_held)
    recorded = await daemon.loop.submit(given)
    if not any(isinstance(r.event, ev.ExampleEdited) for r in recorded):
        states = await anyio.to_thread.run_sync(states_of, daemon.config.journal_path, [request.example, line.example])
        if line.example in states:
            return msg.Failure(
                f"what was written is the example {line.example} already ({states[line.example]})",
                "decline this one instead",
            )
        (refused,) = await _refused(daemon, [request.example])
        return msg.Failure(f"{request.example} cannot be edited: {refused['why']}", "`apollod ctl why ID` tells more")
    return msg.Reply({"schema_version": 1, "example": request.example, "into": line.example})


async def _refused(daemon: Daemon, examples: list[str]) -> list[dict[str, str]]:
    """Why nothing was decided about these."""
    if not examples:
        return []
    states = await anyio.to_thread.run_sync(states_of, daemon.config.journal_path, examples)
    found = []
    for example in examples:
        state = states.get(example, "unknown")
        why = "no such example" if state == "unknown" else _LATER.get(state, f"it is {state}")
        found.append({"example": example, "state": state, "why": why})
    return found
