"""Sources, and the queue of examples."""

from collections import deque
from collections.abc import Collection, Iterator
from itertools import chain

import msgspec

from apollod.core.facts.intake.events import SourceMode, Tier


class Kin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Source, session and topic that an example shares with others. Empty: not known, counts towards no share."""

    source: str = ""
    """its file, the same after the file is rewritten"""
    session: str = ""
    topic: str = ""


class Waiting(msgspec.Struct, gc=False):
    """An accepted example that is not learned yet; `digest` is empty until it is tokenised. `alone`: a step that was to
    learn it with others failed, or (`holds_one`) a step that held several anchors did; such examples come first in
    their queue."""

    example: str
    digest: str = ""
    tier: Tier = "bulk"
    alone: bool = False
    objective: str = "sft"
    tokens: int = 0
    kin: Kin = Kin()
    since_ns: int = 0
    """time of acceptance, or of its return to the queue"""
    holds_one: bool = False


class Queue(msgspec.Struct):
    """Examples of one rank in the order of arrival. Only the fold writes it."""

    waiting: deque[Waiting] = msgspec.field(default_factory=deque)
    """tokenised ones first"""
    untokenised: deque[Waiting] = msgspec.field(default_factory=deque)
    """the tail of `waiting` that has no digest yet, the same objects"""

    def append(self, waiting: Waiting) -> None:
        """Put an example at the end, to be tokenised."""
        self.waiting.append(waiting)
        self.untokenised.append(waiting)

    def take(self, example: str) -> Waiting | None:
        """Remove an example if it waits, and return it: in constant time if it is the last one, which was just
        accepted, else in time linear in its place."""
        if self.untokenised and self.untokenised[-1].example == example:
            self.untokenised.pop()
            return self.waiting.pop()
        place = next((n for n, one in enumerate(self.waiting) if one.example == example), -1)
        if place < 0:
            return None
        found, tokenised = self.waiting[place], len(self.waiting) - len(self.untokenised)
        del self.waiting[place]
        if place >= tokenised:
            del self.untokenised[place - tokenised]
        return found

    def drop_untokenised(self) -> None:
        """Remove the first untokenised example, by its place, without a search."""
        del self.waiting[len(self.waiting) - len(self.untokenised)]
        self.untokenised.popleft()


class Position(msgspec.Struct, frozen=True):
    """Position up to which a source is taken: next unread byte, lines seen, the digest of the last bytes before it, if
    known, and further state of its reader (`SourceConsumed.cursor`)."""

    source: str
    offset: int
    line: int
    tail: str = ""
    cursor: str = ""

    @property
    def file(self) -> str:
        """Identity of the file, which stays the same when it is truncated and rewritten."""
        return self.source.partition("~")[0]

    def anew(self) -> "Position":
        """Start of the new source that begins when the file is rewritten."""
        file, _, times = self.source.partition("~")
        return Position(f"{file}~{int(times or 1) + 1}", 0, 0)


class Blocked(msgspec.Struct, frozen=True):
    """Why a path of a source cannot be read: see `SourceBlocked`. `since_ns`: time of the event."""

    mode: SourceMode
    place: str
    reason: str
    hint: str
    since_ns: int


class IntakeCounts(msgspec.Struct):
    """Totals over the life of the journal."""

    accepted: int = 0
    rejected: int = 0
    duplicates: int = 0


class IntakeState(msgspec.Struct):
    """Sources and examples that were not learned yet."""

    direct: Queue = msgspec.field(default_factory=Queue)
    """tiers `direct` and `dream`, which a person or the next dream waits for; learned before others"""
    bulk: Queue = msgspec.field(default_factory=Queue)
    """tier `bulk`"""
    taken: tuple[Waiting, ...] = ()
    """examples of the running step"""
    undone: dict[str, None] = {}
    """examples whose steps were taken back and that are not queued again, in order"""
    withdrawn: dict[str, None] = {}
    """examples taken out of the queue, in order"""
    ratings: dict[str, Tier] = {}
    """queued rated answers that kto may learn together, in the order in which they were tokenised"""
    ratings_per_step: int = 1
    """`[preferences] ratings_per_step` of this life"""
    first_looks: dict[str, str] = {}
    """examples of `direct` that wait for the first look of their lesson: the lesson by example, in order"""
    again: dict[str, str] = {}
    """for each example that teaches another one again, that one"""
    away: dict[str, Kin] = {}
    """kin of examples that are out of the queue and may come back"""
    recent: list[Kin] = []
    """kin of those last taken from `bulk` in this window, the newest last; `core.facts.intake.order` counts them"""
    scores: dict[str, float] = {}
    """for examples not learned yet, dependence of their answer on stripped text (`ExampleScored`)"""
    sources: dict[str, Position] = {}
    """by identity of the file: another file at the same path is another source"""
    blocked: dict[str, Blocked] = {}
    """paths of sources that cannot be read now"""
    counts: IntakeCounts = msgspec.field(default_factory=IntakeCounts)

    @property
    def queues(self) -> tuple[Queue, Queue]:
        """Both queues in learning order; inside each, examples are in the order of acceptance."""
        return self.direct, self.bulk

    @property
    def pending(self) -> int:
        """Number of examples that wait for their step, without those that wait for a first look or for more ratings."""
        return len(self.direct.waiting) + len(self.bulk.waiting) - len(self.first_looks) - len(self.gathered)

    @property
    def at_once(self) -> int:
        """Number of these that are in `direct`."""
        return len(self.direct.waiting) - len(self.first_looks) - sum(t != "bulk" for t in self.gathered.values())

    @property
    def gathered(self) -> dict[str, Tier]:
        """Ratings that wait until there are enough for a step."""
        return self.ratings if len(self.ratings) < self.ratings_per_step else {}

    @property
    def untokenised(self) -> Iterator[Waiting]:
        """Untokenised examples, in the order of tokenisation."""
        return chain(self.direct.untokenised, self.bulk.untokenised)

    def queue_of(self, tier: Tier) -> Queue:
        """The queue in which examples of a tier wait."""
        return self.bulk if tier == "bulk" else self.direct

    def withdraw(self, examples: Collection[str]) -> None:
        """Take examples out of their queues; only the fold calls this."""
        gone = frozenset(examples)
        for queue in self.queues:
            self.away |= {one.example: one.kin for one in queue.waiting if one.example in gone}
            queue.waiting = deque(one for one in queue.waiting if one.example not in gone)
            queue.untokenised = deque(one for one in queue.untokenised if one.example not in gone)
        self.withdrawn |= dict.fromkeys(examples)
        for example in examples:
            self.first_looks.pop(example, None)
            self.ratings.pop(example, None)

    def leave(self, example: str, tier: Tier) -> None:
        """Take an example out of its queue, if it waits; it may come back. Only the fold calls this."""
        self.first_looks.pop(example, None)
        self.ratings.pop(example, None)
        if example in self.away:  # it left before; take() would search the whole queue
            return
        if (found := self.queue_of(tier).take(example)) is not None:
            self.away[example] = found.kin

    def come_back(self, example: str, tier: Tier, at_ns: int) -> None:
        """Put an example at the end of its queue again. Only the fold calls this."""
        self.queue_of(tier).append(Waiting(example, tier=tier, kin=self.away.pop(example, Kin()), since_ns=at_ns))
