"""Updates by outside trainers: files that nothing needs any more are removed."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio.to_thread
import structlog

from apollod.adapters import update_files
from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.journal_connection import read_again
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.explain import reason
from apollod.supervisor.config import Config
from apollod.supervisor.executor.context import Background, Context, Handler
from apollod.wire.updates import NAME

log = structlog.get_logger()

_SESSION = """SELECT body ->> '$.file' FROM events WHERE kind = 'update.received'
    AND seq > coalesce((SELECT max(seq) FROM events WHERE kind IN ('update.committed', 'update.undone')), 0)"""


_CONTINUED = "SELECT 1 FROM events WHERE kind = 'journal.continued' LIMIT 1"


async def _remove(context: Context, effect: fx.RemoveUpdateFiles) -> inp.UpdateFilesGone | None:
    return inp.UpdateFilesGone(effect.step) if await _removed(context.config, effect.files, effect.step) else None


async def _drop(context: Context, effect: fx.DropUpdateFiles) -> None:
    await _removed(context.config, effect.files)


async def _removed(config: Config, files: tuple[str, ...], step: int = -1) -> bool:
    """Remove files that no committed update has, other than `step`: the same bytes are one file."""
    directory = config.state_dir / NAME
    try:
        needed = await read_again(partial(anyio.to_thread.run_sync, _needed, config.journal_path, step))
        await anyio.to_thread.run_sync(update_files.remove, directory, [one for one in files if one not in needed])
    except OSError as error:
        log.warning("update.files_stay", directory=str(directory), error=reason(error))
        return False
    return True


def _needed(journal: Path, but: int = -1) -> frozenset[str]:
    """Files of committed updates, without those of the step `but`."""
    rows = journal_reader.query(journal, update_files.KEPT.format(but=but), 1 << 20).rows
    return frozenset(str(name) for name, _ in rows)


def remove_others(config: Config) -> None:
    """Remove what a daemon that was killed left and no event names. After an archive only half-received files: its
    journal names the others. Blocking. Raises JournalError."""
    directory = config.state_dir / NAME
    if directory.exists() and journal_reader.query(config.journal_path, _CONTINUED).rows:
        update_files.remove_half_received(directory)
    elif directory.exists():
        received = {str(name) for (name,) in journal_reader.query(config.journal_path, _SESSION, 1 << 20).rows}
        update_files.remove_others(directory, _needed(config.journal_path) | received)


HANDLERS: Mapping[type, Handler] = {fx.RemoveUpdateFiles: Background(_remove), fx.DropUpdateFiles: Background(_drop)}
"""Effect type -> its handler."""
