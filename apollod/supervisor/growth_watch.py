"""Measures the growth of the state directory from time to time, so that a status need not read the journal; and limits
the children's logs."""

from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from apollod.adapters.journal.growth import Growth, growth
from apollod.adapters.system import processes
from apollod.errors import JournalError

log = structlog.get_logger()

LOOK_S = 60.0


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
