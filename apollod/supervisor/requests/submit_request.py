"""Request with lines of an inbox file."""

import anyio.to_thread

from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.explain import reason
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg
from apollod.wire.control_messages import SUBMIT_LINES


async def submit(daemon: Daemon, request: msg.SubmitRequest) -> msg.Answer:
    """Take the lines; answered when the outcome of each line is recorded."""
    if len(request.lines) > SUBMIT_LINES:
        return msg.Failure(f"{len(request.lines)} records are more than {SUBMIT_LINES}", "send them in parts", code=2)
    kept_in, longest = daemon.config.state_dir / "quarantine", daemon.config.inbox.max_line_bytes
    try:
        batch = await anyio.to_thread.run_sync(
            batch_of_lines, request.lines, request.source, kept_in, longest, request.first
        )
    except OSError as error:
        return msg.Failure(
            f"a bad line cannot be kept in {kept_in}: {reason(error)}; nothing was taken",
            "look at the disk, and try again",
            retryable=True,
        )
    recorded = await daemon.loop.submit(inp.LinesRead(batch, frozenset()))
    events = [r.event for r in recorded]
    held = {e.example: e.reason for e in events if isinstance(e, ev.ExampleHeld) and e.waits_for == "person"}
    return msg.Reply(
        {
            "schema_version": 1,
            "examples": [e.example for e in events if isinstance(e, ev.ExampleAccepted)],
            "duplicates": [e.example for e in events if isinstance(e, ev.ExampleDuplicate)],
            "held": [
                {"line": e.line, "example": e.example, "reason": held[e.example]}
                for e in events
                if isinstance(e, ev.ExampleAccepted) and e.example in held
            ],
            "rejected": [{"line": e.line, "reason": e.reason} for e in events if isinstance(e, ev.SourceQuarantined)],
        }
    )
