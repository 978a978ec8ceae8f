"""The bootstrap that is under way, or the last one."""

from typing import Literal

import msgspec

from apollod.core.bootstrap.events import BootstrapCounts, BootstrapRequested

Phase = Literal["reading", "learning", "completed", "stopped"]


class Bootstrapping(msgspec.Struct):
    """One request. `waiting`: its examples that are neither learned nor given up, by id, in the order of acceptance."""

    request: BootstrapRequested
    since_ns: int
    phase: Phase = "reading"
    counts: BootstrapCounts = BootstrapCounts()
    waiting: dict[str, None] = {}
    files: int = 0
    bytes: int = 0
    """of all that was read; 0 while it is being read"""
    unread: int = 0
    """files that could not be read"""
    reason: str = ""
    """why it was stopped"""

    @property
    def under_way(self) -> bool:
        """Is there still something to do?"""
        return self.phase in ("reading", "learning")


class BootstrapState(msgspec.Struct):
    """At most one at a time."""

    current: Bootstrapping | None = None
