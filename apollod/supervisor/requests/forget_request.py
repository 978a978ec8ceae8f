"""Request to forget examples."""

import anyio.to_thread

from apollod.adapters.journal.examples import states_of
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.errors import JournalError
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg

_NOT_LEARNED = {
    "unknown": "no such example",
    "held": "it is held and was not learned; `apollod ctl example decline` settles it",
    "pending": "it waits and was not learned; `apollod ctl example withdraw` takes it out of the queue",
    "withdrawn": "it is in no weights already",
    "trained": "it is being forgotten already",
}


async def forget(daemon: Daemon, request: msg.ForgetRequest) -> msg.Answer:
    """Forget examples; answered when it is recorded, with those to be forgotten, and the reasons for others."""
    try:
        states = await anyio.to_thread.run_sync(states_of, daemon.config.journal_path, request.examples)
    except JournalError as error:
        return msg.Failure(error.line(), retryable=error.retryable)
    learned = tuple(one for one in request.examples if states.get(one) in ("trained", "undone"))
    recorded = await daemon.loop.submit(inp.ForgetRequested(learned, "ctl", request.reason)) if learned else []
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
    return msg.Reply({"schema_version": 1, "examples": done, "refused": refused})
