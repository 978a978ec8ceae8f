"""The bootstrap that is under way, or the last one."""

import msgspec

from apollod.core.bootstrap.events import BootstrapCounts, BootstrapRequested, Phase
from apollod.core.settings import Check

EARLIER_MAX = 64


class Bootstrapping(msgspec.Struct):
    """One request, with the results of earlier ones for the same place and rules. `waiting`: ids of examples neither
    learned nor given up,in the order of acceptance."""

    request: BootstrapRequested
    since_ns: int
    phase: Phase = "reading"
    counts: BootstrapCounts = BootstrapCounts()
    waiting: dict[str, None] = {}
    files: int = 0
    bytes: int = 0
    """size of all that was read; 0 while it is being read"""
    unread: int = 0
    """files that could not be read"""
    reason: str = ""
    """why it was stopped"""
    completed: int = 0
    """number of learned examples when it was last completed, before it was requested again"""

    @property
    def key(self) -> str:
        """Place and rules; a request with the same key resumes this one."""
        return key_of(self.request)

    @property
    def under_way(self) -> bool:
        """True if something remains to be done."""
        return self.phase in ("reading", "learning")


class BootstrapState(msgspec.Struct):
    """The bootstrap under way; at most one at a time."""

    current: Bootstrapping | None = None
    earlier: dict[str, Bootstrapping] = {}
    """others, by place and rules, the newest last, at most `EARLIER_MAX`"""

    @property
    def known(self) -> tuple[Bootstrapping, ...]:
        """All of them, the current one last."""
        return (*self.earlier.values(), *((self.current,) if self.current is not None else ()))

    def before(self, request: BootstrapRequested) -> Bootstrapping | None:
        """The bootstrap with the same place and rules, with its progress; None: not requested before."""
        key = key_of(request)
        return self.current if self.current is not None and self.current.key == key else self.earlier.get(key)

    def asked_of_judge(self, example: str) -> Check | None:
        """Check by which the judge decides about a waiting example; None: no bootstrap wants it judged."""
        found = (one.request.check for one in self.known if one.request.judged and example in one.waiting)
        return next(found, None)


def key_of(request: BootstrapRequested) -> str:
    """Place and rules of a request."""
    return request.path + request.mark
