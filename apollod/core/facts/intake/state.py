"""Sources, and the queue of examples."""

import math
from collections import Counter, deque
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from apollod.core.facts.intake.events import SourceMode, Tier
from apollod.core.schedules import DAY_NS


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
    """kin of those last taken from `bulk` in this window, the newest last; `core.facts.intake.state` counts them"""
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


# Orders the queue: direct examples first; then those whose answer depends most on stripped text, then in the order of
# arrival; no source, session or topic takes more than its share while others wait.
#
# A function of the state alone. The choice is in `step.started`, which readers of the journal use. A choice looks
# at no more than LOOKAHEAD examples, however many wait.

LOOKAHEAD = 256
"""examples at the head of the queue among which the next one is chosen"""
OLD_NS = DAY_NS
"""age relative to the newest example within reach from which an example is learned first, regardless of scores"""
SPAN = 256
"""consecutive examples of a window over which the share is kept; a longer window consists of such spans"""


class Pick(NamedTuple):
    """The chosen example. `place`: number of examples before it in the queue; `over`: groups beyond their share, as
    (kind, name), of the first one passed over; `all_over`: every example within reach was beyond a share."""

    waiting: Waiting
    place: int = 0
    over: tuple[tuple[str, str], ...] = ()
    all_over: bool = False


def first(intake: IntakeState, share_max: float) -> Waiting | None:
    """The next example; None if nothing waits."""
    pick = next(upcoming(intake, share_max), None)
    return pick.waiting if pick else None


def upcoming(intake: IntakeState, share_max: float) -> Iterator[Pick]:
    """The examples that are learned next if nothing else comes, in order. With shares, untokenised ones come after all
    tokenised ones, which is an approximation. Examples that wait for a first look or for more ratings are left out."""
    looks, gathered = intake.first_looks, intake.gathered
    yield from (Pick(one) for one in intake.direct.waiting if one.example not in looks and one.example not in gathered)
    if share_max >= 1.0 and not intake.scores:
        yield from (Pick(one) for one in intake.bulk.waiting if one.example not in gathered)
    else:
        yield from _shared(intake, share_max, gathered)


def _shared(intake: IntakeState, share_max: float, gathered: Container[str]) -> Iterator[Pick]:
    queue = intake.bulk
    ready = len(queue.waiting) - len(queue.untokenised)
    coming = (one for one in islice(queue.waiting, ready) if one.example not in gathered)
    reach = list(islice(coming, LOOKAHEAD))
    taken = [_groups(kin) for kin in intake.recent]
    counts = Counter(group for groups in taken for group in groups)
    while reach:
        at, pick = _choice(reach, _ranked(reach, intake.scores), counts, len(taken), share_max)
        yield pick
        del reach[at]
        reach += islice(coming, 1)
        taken.append(_groups(pick.waiting.kin))
        counts.update(taken[-1])
        if len(taken) >= SPAN:
            counts.subtract(taken.pop(0))
    yield from (Pick(one) for one in queue.untokenised)


def _ranked(reach: list[Waiting], scores: Mapping[str, float]) -> Sequence[int]:
    """Places in the order in which they are considered. Examples without a positive score keep their order."""
    if not scores:
        return range(len(reach))
    newest = max(one.since_ns for one in reach)

    def rank(place: int) -> tuple[bool, float]:
        one = reach[place]
        old = newest - one.since_ns > OLD_NS
        return not old, 0.0 if old else -max(0.0, scores.get(one.example, 0.0))

    return sorted(range(len(reach)), key=rank)


def _choice(
    reach: list[Waiting], ranked: Sequence[int], counts: "Counter[tuple[str, str]]", taken: int, share_max: float
) -> tuple[int, Pick]:
    """The first one in this order that keeps all shares; if there is none, the one whose groups have the fewest. An
    example to be learned alone after a failed step was chosen before."""
    if reach[0].alone:
        return 0, Pick(reach[0])
    most = max(1, math.ceil(share_max * (taken + 1) - 1e-9))  # a tenth of 30 is 3 in spite of rounding
    over: tuple[tuple[str, str], ...] = ()
    least, of_least = 0, -1
    for place in ranked:
        one = reach[place]
        groups = _groups(one.kin)
        had = max((counts[group] for group in groups), default=0)
        if had < most:
            return place, Pick(one, place, over)
        over = over or tuple(group for group in groups if counts[group] >= most)
        if of_least < 0 or had < of_least:
            least, of_least = place, had
    return least, Pick(reach[least], least, over, all_over=True)


def _groups(kin: Kin) -> tuple[tuple[str, str], ...]:
    """The known groups of an example."""
    named = (("source", kin.source), ("session", kin.session), ("topic", kin.topic))
    return tuple(group for group in named if group[1])
