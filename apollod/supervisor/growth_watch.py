"""How fast the state directory grows, looked up now and then, so that a status need not read the journal."""

from pathlib import Path

import anyio
import anyio.to_thread

from apollod.adapters.journal.growth import Growth, growth
from apollod.errors import JournalError

LOOK_S = 60.0


class GrowthWatch:
    """`latest`: None while nothing can be said."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self.latest: Growth | None = None

    async def run(self) -> None:
        """Look once a minute; what is wrong with the journal is said by others."""
        while True:
            try:
                self.latest = await anyio.to_thread.run_sync(growth, self._journal)
            except (JournalError, OSError):
                self.latest = None
            await anyio.sleep(LOOK_S)
