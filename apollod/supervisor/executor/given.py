"""Records that a model wrote, as lines of the intake."""

import anyio.to_thread

from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.core.intake.inputs import Line
from apollod.supervisor.executor.context import Context


async def given_line(context: Context, record: bytes, source: str) -> Line | None:
    """A canonical record as a line from `source`, redacted like any other. Raises OSError if a bad one cannot be
    kept."""
    kept_in, longest = context.config.state_dir / "quarantine", context.config.inbox.max_line_bytes
    batch = await anyio.to_thread.run_sync(batch_of_lines, [record], source, kept_in, longest)
    return next(iter(batch.lines), None)
