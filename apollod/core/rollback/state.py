"""State: the rollback that is requested or under way."""

import msgspec

from apollod.core.rollback.events import RollbackRequested, RollbackStarted


class RollbackState(msgspec.Struct):
    """A request, then its execution."""

    wanted: RollbackRequested | None = None
    under_way: RollbackStarted | None = None
    started_ns: int = 0
