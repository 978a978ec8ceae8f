"""Looks after the journal: verifies old events, measures the growth, and limits the children's logs.

A start folds what came after the snapshot and checks the chain of hashes there; without an audit of every event before
it, once in a daemon's life, an edited, deleted or damaged older event would go unnoticed. Slices are short and far
apart, since requests and steps come first, and no transaction is held between two of them.
"""

from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.journal_connection import read_again
from apollod.adapters.journal.journal_file import Growth, growth
from apollod.adapters.system import processes
from apollod.errors import ChainBroken, JournalError
from apollod.wire.event_codec import GENESIS

log = structlog.get_logger()

SLICE = 500  # events; about 2 ms during which the thread holds the interpreter
PAUSE_S = 0.01

LOOK_S = 60.0


class Audit:
    """`verified`: the event up to which the chain was verified in this life. `damage`: the damage found; empty:
    none."""

    def __init__(self, journal: Path, snapshot_seq: int, head_seq: int) -> None:
        """`snapshot_seq`: last event to check; the fold has checked the events from there to `head_seq`."""
        self._journal = journal
        self._snapshot_seq = snapshot_seq
        self._head_seq = head_seq
        self.verified = 0
        self.damage = ""

    async def run(self) -> None:
        """Check from the first event up to the snapshot; report damage once and stop."""
        hash_ = GENESIS
        while self.verified < self._snapshot_seq:
            limit = min(SLICE, self._snapshot_seq - self.verified)
            read = partial(journal_reader.verified, self._journal, self.verified, hash_, limit)
            try:
                seq, hash_ = await read_again(partial(anyio.to_thread.run_sync, read))
                if seq < self.verified + limit:  # the rest was deleted, although the snapshot's own event was there
                    raise ChainBroken(str(self._journal), seq + 1)
            except JournalError as error:
                if error.retryable:
                    await anyio.sleep(PAUSE_S * 100)
                    continue
                self._found(error)
                return
            self.verified = seq
            await anyio.sleep(PAUSE_S)
        self.verified = self._head_seq

    def _found(self, error: JournalError) -> None:
        what = (
            f"event {error.seq} is missing or does not match its hash" if isinstance(error, ChainBroken) else str(error)
        )
        self.damage = (
            f"the journal {self._journal} is damaged: {what}; serving and learning go on, but what lies before the "
            "newest snapshot "
            "is no longer proved; stop apollod and restore a backup (`apollod ctl journal verify` says how far a "
            "file is good)"
        )
        log.error("journal.damaged", error=self.damage)


class GrowthWatch:
    """`latest`: None if not known."""

    def __init__(self, journal: Path, logs: Path) -> None:
        self._journal, self._logs = journal, logs
        self.latest: Growth | None = None

    async def run(self) -> None:
        """Measure once a minute; errors of the journal are reported elsewhere."""
        while True:
            try:
                self.latest = await anyio.to_thread.run_sync(growth, self._journal)
            except (JournalError, OSError):
                self.latest = None
            await self._cut_logs()
            await anyio.sleep(LOOK_S)

    async def _cut_logs(self) -> None:
        try:
            cut = await anyio.to_thread.run_sync(processes.cut_logs, self._logs)
        except OSError as error:
            log.warning("log.not_cut", directory=str(self._logs), error=str(error))
            return
        for path in cut:
            log.info("log.cut", path=str(path), older=f"{path}.1")
