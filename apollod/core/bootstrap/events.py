"""Facts: a source is read once, from its beginning to its end as it is now."""

from hashlib import blake2b
from typing import ClassVar

import msgspec

from apollod.core.intake.events import StripLevel, Tier
from apollod.core.kernel.event import Event

MARK_BYTES = 6


class BootstrapCounts(msgspec.Struct, frozen=True):
    """What became of the source so far: lines, except for `learned` and `held`, which are examples."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    dropped: int = 0
    """turns that gave no example, by the rules or because a user took them back"""
    learned: int = 0
    """also those that a rollback took back afterwards"""
    held: int = 0
    """they wait for a person, or did: they are no part of it any more"""


class BootstrapRequested(Event, frozen=True):
    """All of `path` (a file, a directory, a database) is to be read and learned once, by these rules, which mean what
    they mean in `[[watch]]`."""

    kind: ClassVar[str] = "bootstrap.requested"
    path: str
    by: str
    models: tuple[str, ...]
    strip: StripLevel = "system"
    strip_patterns: tuple[str, ...] = ()
    sidechains: bool = False
    format: str = "auto"
    tier: Tier = "bulk"
    review: str = "auto"
    pattern: str = ""
    """whose instruction is stripped; what was said without it is not learned; empty: there is no such rule"""
    instruction: str = ""
    """of that pattern, as it was when this was asked"""

    def key(self) -> str:
        return self.path

    @property
    def mark(self) -> str:
        """What the names of its sources end with. Positions are kept by it, so that the same rules go on where they
        stopped, others begin anew, and a `[[watch]]` of the same files keeps its own."""
        rules: tuple[object, ...] = (self.models, self.strip, self.strip_patterns, self.sidechains, self.format)
        rules += (self.instruction,) if self.instruction else ()
        return "@" + blake2b(msgspec.json.encode(rules), digest_size=MARK_BYTES).hexdigest()


class Unread(msgspec.Struct, frozen=True):
    """A path below the source that could not be read, and what can be done about it."""

    path: str
    reason: str
    hint: str = ""


class BootstrapRead(Event, frozen=True):
    """Everything is read that can be; its examples wait for their steps. `bytes`: of all `files` as they lie on
    disk; `unread`: at most `UNREAD_MAX` paths of `unread_files`."""

    kind: ClassVar[str] = "bootstrap.read"
    path: str
    files: int
    bytes: int
    counts: BootstrapCounts
    unread: tuple[Unread, ...] = ()
    unread_files: int = 0

    def key(self) -> str:
        return self.path


class BootstrapCompleted(Event, frozen=True):
    """None of its examples waits any more. `seconds`: since it was requested, stops of the daemon included."""

    kind: ClassVar[str] = "bootstrap.completed"
    path: str
    counts: BootstrapCounts
    seconds: float

    def key(self) -> str:
        return self.path


class BootstrapStopped(Event, frozen=True):
    """Nothing more of it is read. What was accepted stays in the queue; the same request goes on from here."""

    kind: ClassVar[str] = "bootstrap.stopped"
    path: str
    counts: BootstrapCounts
    reason: str

    def key(self) -> str:
        return self.path
