"""The way back, while it is wanted and while it is gone."""

import msgspec

from apollod.core.rollback.events import RollbackRequested, RollbackStarted


class RollbackState(msgspec.Struct):
    """A wish, then its execution."""

    wanted: RollbackRequested | None = None
    under_way: RollbackStarted | None = None
    started_ns: int = 0
