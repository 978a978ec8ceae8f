"""Requests about examples: submit, decide, edit, withdraw and forget."""

from typing import Any

import anyio.to_thread

from apollod.adapters.journal.examples import deciders_of, source_examples, states_of
from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.curation.moments import Rules
from apollod.errors import JournalError
from apollod.explain import reason
from apollod.supervisor.requests.asked import USAGE, Daemon, input_of, reply
from apollod.wire import messages as msg
from apollod.wire.control_messages import SUBMIT_LINES

_WHY = {
    "unknown": "no such example",
    "held": "it waits for a decision already",
    "pending": "it waits to be learned already",
    "trained": "it was learned; `apollod ctl example forget` takes it out of the weights",
    "undone": "its step was taken back; `apollod ctl relearn` asks for it again",
    "withdrawn": "it was withdrawn; `apollod ctl relearn` asks for it again",
    "rejected": "it cannot be learned from",
    "skipped": "its step wrote nothing",
    "declined": "it was declined",
    "edited": "another one is learned instead; `apollod ctl example hold` takes that decision back",
    "expired": "nobody decided about it in time",
}
_RUNNING = "it is being learned now; after that `apollod ctl example forget` takes it out of the weights"
_DECIDED = ("pending", "held", "declined", "edited")
"""states that follow from a decision"""

_NOT_LEARNED = {
    "unknown": "no such example",
    "held": "it is held and was not learned; `apollod ctl example decline` settles it",
    "pending": "it waits and was not learned; `apollod ctl example withdraw` takes it out of the queue",
    "withdrawn": "it is in no weights already",
    "trained": "it is being forgotten already",
}


async def submit(daemon: Daemon, request: msg.SubmitRequest) -> msg.Answer:
    """Take the lines; answered when the outcome of each line is recorded."""
    if len(request.lines) > SUBMIT_LINES:
        too_many = f"{len(request.lines)} records are more than {SUBMIT_LINES}"
        return msg.Failure(too_many, "send them in parts", code=USAGE)
    rules = Rules(preferences=daemon.config.preferences.rules())
    batch = await _batch(daemon, request.lines, request.source, request.first, rules)
    if isinstance(batch, msg.Failure):
        return batch
    recorded = await daemon.loop.submit(inp.LinesRead(batch, frozenset()))
    events = [r.event for r in recorded]
    held = {e.example: e.reason for e in events if isinstance(e, ev.ExampleHeld) and e.waits_for == "person"}
    return reply(
        examples=[e.example for e in events if isinstance(e, ev.ExampleAccepted)],
        duplicates=[e.example for e in events if isinstance(e, ev.ExampleDuplicate)],
        held=[
            {"line": e.line, "example": e.example, "reason": held[e.example]}
            for e in events
            if isinstance(e, ev.ExampleAccepted) and e.example in held
        ],
        rejected=[{"line": e.line, "reason": e.reason} for e in events if isinstance(e, ev.SourceQuarantined)],
    )


async def _batch(daemon: Daemon, lines: list[bytes], source: str, *more: Any) -> inp.Batch | msg.Failure:
    """The lines as a batch; `more`: see `batch_of_lines`."""
    kept_in, longest = daemon.config.state_dir / "quarantine", daemon.config.inbox.max_line_bytes
    try:
        return await anyio.to_thread.run_sync(batch_of_lines, lines, source, kept_in, longest, *more)
    except OSError as error:
        why = f"a bad line cannot be kept in {kept_in}: {reason(error)}; nothing was taken"
        return msg.Failure(why, "look at the disk, and try again", retryable=True)


async def decide(daemon: Daemon, request: msg.DecideRequest) -> msg.Answer:
    """Record decisions; answered with each decision that came too late, and the state of its example."""
    recorded = await daemon.loop.submit(input_of(inp.DecisionsGiven, request))
    kinds: dict[str, type[ev.ExampleApproved | ev.ExampleDeclined | ev.ExampleHeld]] = {
        "approved": ev.ExampleApproved, "declined": ev.ExampleDeclined, "held": ev.ExampleHeld,
    }  # fmt: skip
    done = {how: [r.event.example for r in recorded if isinstance(r.event, kind)] for how, kind in kinds.items()}
    decided = {example for examples in done.values() for example in examples}
    refused = await _refused(daemon, [one.example for one in request.decisions if one.example not in decided])
    return reply(**done, refused=refused)


async def edit(daemon: Daemon, request: msg.EditRequest) -> msg.Answer:
    """Replace an example by an edited one; answered when it is recorded, with the new id."""
    batch = await _batch(daemon, [request.record], f"edit:{request.example}")
    if isinstance(batch, msg.Failure):
        return batch
    if len(batch.lines) != 1:
        return msg.Failure(f"what was written is {len(batch.lines)} examples, not one", "nothing was changed")
    (line,) = batch.lines
    if not line.example:
        return msg.Failure(f"what was written is no example: {line.reason}", "nothing was changed")
    if line.example == request.example:
        return msg.Failure("nothing was changed in it", "approve it, or leave it held")
    (leak,) = await daemon.loop.leaks_of([line.record])
    if leak:
        return msg.Failure(
            f"what was written holds {leak}, which measures nothing any more once this is learned",
            "nothing was changed; write it without that, or take the probe out of its file",
        )
    given = input_of(inp.EditGiven, request, line=line)
    recorded = await daemon.loop.submit(given)
    if not any(isinstance(r.event, ev.ExampleEdited) for r in recorded):
        return await _not_edited(daemon, request.example, line.example)
    return reply(example=request.example, into=line.example)


async def _not_edited(daemon: Daemon, example: str, into: str) -> msg.Failure:
    states = await anyio.to_thread.run_sync(states_of, daemon.config.journal_path, [example, into])
    if into in states:
        return msg.Failure(
            f"what was written is the example {into}, which the journal has already: it is {states[into]}",
            "nothing was changed; decide about that one, and decline this one",
        )
    (refused,) = await _refused(daemon, [example])
    return msg.Failure(f"{example} cannot be edited: {refused['why']}", "`apollod ctl why ID` tells more")


async def _refused(daemon: Daemon, examples: list[str]) -> list[dict[str, str]]:
    """Why these were not decided; `by`: the earlier decider, if any."""
    if not examples:
        return []
    journal = daemon.config.journal_path
    states = await anyio.to_thread.run_sync(states_of, journal, examples)
    deciders = await anyio.to_thread.run_sync(deciders_of, journal, examples)
    running = {one.example for one in daemon.loop.state.intake.taken}
    found = []
    for example in examples:
        state = states.get(example, "unknown")
        by = deciders.get(example, "") if state in _DECIDED else ""
        why = _RUNNING if example in running else _WHY[state]
        found.append({"example": example, "state": state, "by": by, "why": f"{why} ({by} decided)" if by else why})
    return found


async def withdraw(daemon: Daemon, request: msg.WithdrawRequest) -> msg.Answer:
    """Withdraw examples; answered when it is recorded. For a source, all waiting ones; for named examples, none if one
    of them does not wait."""
    examples, intake = request.examples, daemon.loop.state.intake
    if request.source:
        try:
            examples = await anyio.to_thread.run_sync(source_examples, daemon.config.journal_path, request.source)
        except JournalError as error:
            return msg.Failure(error.line(), retryable=error.retryable)
        if not examples:
            return msg.Failure(
                f"no example came from {request.source}", "`apollod ctl example list --json` names their sources"
            )
    else:
        waiting = {one.example for queue in intake.queues for one in queue.waiting}
        taken = {one.example for one in intake.taken}
        if others := [example for example in examples if example not in waiting]:
            why = "is being learned" if others[0] in taken else "does not wait"
            return msg.Failure(f"{others[0]} {why}; nothing was withdrawn", "`apollod ctl why ID` tells its state")
    recorded = await daemon.loop.submit(input_of(inp.ExampleWithdrawn, request, examples=tuple(examples)))
    withdrawn = [one for r in recorded if isinstance(r.event, ev.ExampleWithdrawn) for one in r.event.examples]
    return reply(examples=withdrawn)


async def forget(daemon: Daemon, request: msg.ForgetRequest) -> msg.Answer:
    """Forget examples; answered when it is recorded, with those to be forgotten, and the reasons for others."""
    try:
        states = await anyio.to_thread.run_sync(states_of, daemon.config.journal_path, request.examples)
    except JournalError as error:
        return msg.Failure(error.line(), retryable=error.retryable)
    learned = tuple(one for one in request.examples if states.get(one) in ("trained", "undone"))
    recorded = await daemon.loop.submit(input_of(inp.ForgetRequested, request, examples=learned)) if learned else []
    done = [
        one
        for r in recorded
        if isinstance(r.event, ev.ForgetRequested | ev.ExampleWithdrawn)
        for one in r.event.examples
    ]
    left = {one: states.get(one, "unknown") for one in request.examples if one not in done}
    refused = [
        {"example": one, "state": state, "why": _NOT_LEARNED.get(state, f"it is {state} and was not learned")}
        for one, state in left.items()
    ]
    return reply(examples=done, refused=refused)
