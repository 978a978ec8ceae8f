"""Decides when a directory is scanned again.

Rule: notifications are only hints. They say where to look soon; a regular scan finds what they missed, and replaces
them where there are none (no such directory, no watches left).
"""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

Matters = Callable[[watchfiles.Change, str], bool]
"""(kind of change, path) -> True if it is worth a scan"""
LOOK_S = 1.0  # a thread waits for notifications at most this long; a stop waits for that thread


async def looks(
    directory: Path, every_s: float, gather_ms: int, matters: Matters, recursive: bool
) -> AsyncIterator[None]:
    """Yield at once, soon after a change (changes are gathered for `gather_ms`), and at least every `every_s`
    seconds."""
    yield
    last = anyio.current_time()
    while True:
        changes = watchfiles.awatch(
            directory,
            debounce=gather_ms,
            rust_timeout=int(min(LOOK_S, every_s) * 1000),
            yield_on_timeout=True,
            recursive=recursive,
            watch_filter=matters,
        )
        try:
            async with aclosing(changes):
                async for changed in changes:
                    if changed or anyio.current_time() - last >= every_s:
                        last = anyio.current_time()
                        yield
        except* (OSError, WatchfilesRustInternalError):  # in a group: it comes out of a task group of watchfiles
            pass
        await anyio.sleep(every_s)
        last = anyio.current_time()
        yield
