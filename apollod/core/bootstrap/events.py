"""Facts: a source is read once, from its beginning to its end as it is now."""

from hashlib import blake2b
from typing import ClassVar, Literal

import msgspec

from apollod.core.intake.events import StripLevel, Tier
from apollod.core.kernel.event import Event
from apollod.core.settings import Check
from apollod.core.surroundings import SurroundingKind

MARK_BYTES = 6
Phase = Literal["reading", "learning", "completed", "stopped"]


class BootstrapCounts(msgspec.Struct, frozen=True):
    """Counts of the answers that were read so far, by their outcome; each is an example (a long one several)."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    """lines, since nobody knows which answers are in them: they are no records"""
    dropped: int = 0
    """answers that gave no example, by the rules, the check, or because a user took them back"""
    learned: int = 0
    """also those that a rollback took back afterwards"""
    held: int = 0
    """they wait for a person or for evidence, or did: they are no part of it any more"""


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
    surroundings: tuple[SurroundingKind, ...] = ()
    """in which it is learned where nothing but the instruction stood before a request; empty: in none"""
    check: Check | None = None
    """of that pattern, which decides what is learned; None: nothing but the rules does"""

    def key(self) -> str:
        return self.path

    @property
    def judged(self) -> bool:
        """True if the judge decides what is learned."""
        return self.check is not None and not self.check.by_code

    @property
    def mark(self) -> str:
        """The suffix of the names of its sources. Positions are kept by it, so that the same rules go on where they
        stopped, others begin anew, and a `[[watch]]` of the same files keeps its own."""
        rules: tuple[object, ...] = (self.models, self.strip, self.strip_patterns, self.sidechains, self.format)
        rules += (self.instruction,) if self.instruction else ()
        rules += (self.check,) if self.check is not None else ()
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


class BootstrapCarried(Event, frozen=True):
    """State of the bootstrap that was requested before this event, at the end of the journal's archive; see the fields
    of `Bootstrapping`. `waiting`: some of its examples; further events of this kind name others."""

    kind: ClassVar[str] = "bootstrap.carried"
    path: str
    phase: Phase
    counts: BootstrapCounts
    waiting: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    unread: int = 0
    reason: str = ""
    completed: int = 0

    def key(self) -> str:
        return self.path
