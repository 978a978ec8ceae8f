"""Request to take examples out of the queue."""

import anyio.to_thread

from apollod.adapters.journal.examples import source_examples
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.errors import JournalError
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg


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
    recorded = await daemon.loop.submit(inp.WithdrawRequested(tuple(examples), by="ctl"))
    withdrawn = [one for r in recorded if isinstance(r.event, ev.ExampleWithdrawn) for one in r.event.examples]
    return msg.Reply({"schema_version": 1, "examples": withdrawn})
