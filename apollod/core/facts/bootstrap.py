"""Bootstraps: existing logs of agents, read once and learned without their instructions. Events, inputs, effects and
state.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.intake.events import StripLevel, Tier
from apollod.core.kernel.composing import composed
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.settings import Check
from apollod.core.surroundings import SurroundingKind

# --- events ----------------------------------------------------------------------------------------------------------

MARK_BYTES = 6
Phase = Literal["reading", "learning", "completed", "stopped"]


class BootstrapCounts(msgspec.Struct, frozen=True):
    """Counts of the answers that were read so far, by their outcome; each is an example (a long one several)."""

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    """lines, since a line that is not a record has no known answers"""
    dropped: int = 0
    """answers without an example: by the rules, by the check, or because a user took them back"""
    learned: int = 0
    """including those that a rollback took back afterwards"""
    held: int = 0
    """waiting for a person or for evidence, or having waited: no longer part of the bootstrap"""


class BootstrapEvent(Event, frozen=True):
    """Base of events about the bootstrap of one place."""

    path: str

    def key(self) -> str:
        return self.path


class BootstrapRequested(BootstrapEvent, Input, frozen=True):
    """All of `path` (a file, a directory, a database) is to be read and learned once, by these rules, as in
    `[[watch]]`."""

    kind: ClassVar[str] = "bootstrap.requested"
    by: str
    models: tuple[str, ...]
    strip: StripLevel = "system"
    strip_patterns: tuple[str, ...] = ()
    sidechains: bool = False
    format: str = "auto"
    tier: Tier = "bulk"
    review: str = "auto"
    pattern: str = ""
    """pattern whose instruction is stripped; answers given without it are not learned; empty: no such rule"""
    instruction: str = ""
    """instruction of that pattern at the time of the request"""
    surroundings: tuple[SurroundingKind, ...] = ()
    """surroundings in which an answer is learned if only the instruction stood before its request; empty: none"""
    check: Check | None = None
    """check of that pattern, which decides what is learned; None: only the rules do"""

    @property
    def judged(self) -> bool:
        """True if the judge decides what is learned."""
        return self.check is not None and not self.check.by_code

    @property
    def mark(self) -> str:
        """Suffix of the names of its sources. Positions are stored under it: the same rules go on where they stopped,
        others begin anew, and a `[[watch]]` of the same files keeps its own."""
        rules: tuple[object, ...] = (self.models, self.strip, self.strip_patterns, self.sidechains, self.format)
        rules += (self.instruction,) if self.instruction else ()
        rules += (self.check,) if self.check is not None else ()
        return "@" + blake2b(msgspec.json.encode(rules), digest_size=MARK_BYTES).hexdigest()


class Unread(msgspec.Struct, frozen=True):
    """A path below the source that could not be read, the reason, and what to do about it."""

    path: str
    reason: str
    hint: str = ""


class BootstrapRead(BootstrapEvent, frozen=True):
    """All readable files were read; the examples wait for their steps. `bytes`: size of all `files` on disk; `unread`:
    at most `UNREAD_MAX` paths of `unread_files`."""

    kind: ClassVar[str] = "bootstrap.read"
    files: int
    bytes: int
    counts: BootstrapCounts
    unread: tuple[Unread, ...] = ()
    unread_files: int = 0


class BootstrapCompleted(BootstrapEvent, frozen=True):
    """No example of it waits any more. `seconds`: since the request, stops of the daemon included."""

    kind: ClassVar[str] = "bootstrap.completed"
    counts: BootstrapCounts
    seconds: float


class BootstrapStopped(BootstrapEvent, frozen=True):
    """Reading was stopped. Accepted examples stay in the queue; the same request resumes here."""

    kind: ClassVar[str] = "bootstrap.stopped"
    counts: BootstrapCounts
    reason: str


class BootstrapCarried(BootstrapEvent, frozen=True):
    """State, at the end of the journal's archive, of the bootstrap requested before this event; see the fields of
    `Bootstrapping`. `waiting`: some of its examples; further events of this kind name others."""

    kind: ClassVar[str] = "bootstrap.carried"
    phase: Phase
    counts: BootstrapCounts
    waiting: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    unread: int = 0
    reason: str = ""
    completed: int = 0


# --- inputs ----------------------------------------------------------------------------------------------------------


class BootstrapRan(Input, frozen=True):
    """The reader of this request has finished. `refused`: why the source itself cannot be read."""

    request: BootstrapRequested
    files: int = 0
    bytes: int = 0
    unread: tuple[Unread, ...] = ()
    refused: str = ""


class BootstrapStopWanted(Input, frozen=True):
    """Stop reading."""

    by: str


# --- state -----------------------------------------------------------------------------------------------------------

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


# --- bootstraps carried ----------------------------------------------------------------------------------------------
# Builds the events by which a continued journal takes over bootstraps from its archive, so that one can be resumed.

NAMED_MAX = 1000
"""examples named by one event"""


def bootstraps_taken_over(own: BootstrapState, at_ns: int) -> Iterator[tuple[int, Event]]:
    """Times (ns since 1970) and events that fold to `own`, in order; none is under way."""
    for one in own.known:
        yield one.since_ns, one.request
        waiting = tuple(one.waiting)
        for at in range(0, max(1, len(waiting)), NAMED_MAX):
            carried = composed(BootstrapCarried, one, path=one.request.path, waiting=waiting[at : at + NAMED_MAX])
            yield at_ns, carried
