"""State of the quality guard: the baseline, the looks since, and the incident under way."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from apollod.core.facts.dreams.held_out_rounds import ContrastCase
from apollod.core.facts.quality.culprits import Search, search, told
from apollod.core.facts.quality.events import (
    Drop,
    News,
    QualityAlarmed,
    QualityNamed,
    QualitySettled,
    QualityTold,
    VerdictKind,
    Why,
)
from apollod.core.facts.quality.sequential import Baseline, Metric
from apollod.core.facts.training import Learned
from apollod.core.schedules import DAY_NS, NO_FAILURE, SECOND_NS, Retry, is_recent

# Messages about incidents that were not delivered yet.
#
# An alarm, a verdict that a person has to act on, or a settlement is the intent to send a message, if `[quality]
# on_alarm` is set; `quality.told` is the result. The oldest is sent first.


class Message(msgspec.Struct, frozen=True):
    """An incident (`about`): see `News`, `QualityAlarmed` and `QualitySettled`. `how` includes the advice, if the
    learning rate is the cause."""

    incident: int
    about: News
    at_ns: int
    step: int
    to: int
    metrics: tuple[str, ...]
    drops: dict[str, Drop]
    how: str = ""
    by: str = ""
    taken_back: int = 0


class Telling(msgspec.Struct):
    """Alarm notifications that were not delivered yet, and the attempts for the first of them."""

    waiting: list[Message] = []
    alarm: Message | None = None
    """the last one, told or not: its end is told with what it was"""
    retry: Retry = NO_FAILURE
    error: str = ""

    def begun(self, wanted: bool) -> None:
        """Begin a daemon's life: messages may go to another receiver than before, or (not `wanted`) to none."""
        self.retry, self.error = NO_FAILURE, ""
        if not wanted:
            self.waiting = []

    def alarmed(self, e: QualityAlarmed, at_ns: int, wanted: bool) -> None:
        """Add the message that an incident begins."""
        self.alarm = Message(e.incident, "alarmed", at_ns, e.step, e.to, e.metrics, e.drops)
        if wanted:
            self.waiting.append(self.alarm)

    def found_rate(self, e: QualityNamed, at_ns: int, wanted: bool) -> None:
        """Add the message that the learning rate is the cause, with the advice."""
        if wanted and self.alarm is not None:
            self.waiting.append(msgspec.structs.replace(self.alarm, about="rate", at_ns=at_ns, how=e.reason))

    def settled(self, e: QualitySettled, at_ns: int, wanted: bool) -> None:
        """Add the message that the incident ends."""
        if wanted and self.alarm is not None:
            self.waiting.append(
                msgspec.structs.replace(
                    self.alarm, about="settled", at_ns=at_ns, how=e.how, by=e.by, taken_back=e.taken_back
                )
            )

    def told(self, e: QualityTold, at_ns: int) -> None:
        """Record that the first message was delivered, or could not be."""
        self.error = e.reason
        over = e.ok or e.gives_up
        self.retry = NO_FAILURE if over else self.retry.after(at_ns, e.retry_s, e.attempt)
        if over:
            self.waiting = [one for one in self.waiting if (one.incident, one.about) != (e.incident, e.about)]


GUARD = "the quality guard"
"""value of `by` for its rollbacks and settlements"""

Phase = Literal["alarmed", "restored", "searching", "named", "stuck"]
"""alarmed: the weights go back to the last good ones; restored: they are back; searching: replays search for the
harmful examples; named: there is a verdict; stuck: the last good weights cannot be reached"""

Restored = Literal["", "good", "bad", "unknown"]
"""The verdict on the weights that came back after an alarm. Empty: not measured yet; good; bad: also worse than the
baseline, and no earlier ones are known to be good; unknown: they cannot be measured."""

WINDOW_MAX = 2000
"""most steps since the last good look that are remembered; after more there is no search"""

GOODS_MAX = 8
"""most steps remembered as good, the baseline's included"""


class Asked(msgspec.Struct):
    """A replay of a search. `drops`: None before the answer; `lr_scale` as in `QualityReplayBegun`."""

    left_out: tuple[str, ...]
    drops: dict[str, float] | None = None
    lr_scale: float = 1.0


class Ranking(msgspec.Struct):
    """A first-order ranking, used if replays cannot be run."""

    number: int = 0
    """number of requests"""
    open: bool = False
    ended: int = 0
    """times that the trainer ended during a request"""
    scores: dict[str, float] | None = None
    """None: not known yet"""
    unscored: tuple[str, ...] = ()
    gave_up: str = ""
    """why there is no ranking"""


class Incident(msgspec.Struct):
    """An alarm that is not settled."""

    number: int
    step: int
    to: int
    metrics: tuple[str, ...]
    phase: Phase = "alarmed"
    restored: Restored = ""
    reason: str = ""
    fell: dict[str, tuple[str, ...]] = {}
    margins: dict[str, float] = {}
    steps: tuple[Learned, ...] = ()
    """steps after `to`"""
    whole: bool = True
    """`steps` is complete"""
    window: tuple[str, ...] = ()
    """examples that are searched, in the order of learning; empty before the search"""
    replays: list[Asked] = []
    replays_max: int = 0
    culprits_max: int = 0
    retry: Retry = NO_FAILURE
    """of the open replay"""
    gave_up: str = ""
    """why no further replay is run"""
    ranking: Ranking = msgspec.field(default_factory=Ranking)
    verdict: VerdictKind | None = None
    culprits: tuple[str, ...] = ()
    again: tuple[Learned, ...] = ()
    """steps to repeat, with their innocent examples"""
    lr_scale: float = 1.0
    """share of their learning rate at which they are repeated"""
    undone: tuple[int, ...] = ()
    """steps taken back, the last first"""
    resumed: bool = False
    """a person has seen the verdict"""

    @property
    def open_replay(self) -> Asked | None:
        return self.replays[-1] if self.replays and self.replays[-1].drops is None else None


class Measuring(msgspec.Struct):
    """A measurement under way."""

    number: int
    why: Why
    step: int
    share: float = 1.0
    lessons: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


class Totals(msgspec.Struct, frozen=True):
    """Counts over the life of the journal, and of its archives."""

    failed: int = 0
    """failed measurements"""
    taken_back: int = 0
    """steps taken back by alarms"""
    replays: int = 0
    """measured replays of searches"""


class QualityState(msgspec.Struct):
    """The baseline, the looks since, and the incident under way. Steps are those of the weights."""

    probes: str = ""
    """digest of the baseline's probes"""
    contrasts: tuple[ContrastCase, ...] = ()
    """cases of patterns among them"""
    runs: list[dict[str, dict[str, float]]] = []
    """runs of the next baseline, while there are too few"""
    baseline: dict[str, Baseline] = {}
    silent: dict[str, tuple[int, int]] = {}
    """groups that looks leave out, see `QualityRequested`: (passed, count) of their items at the baseline"""
    at: int = -1
    """step of the baseline"""
    metrics: dict[str, Metric] = {}
    number: int = 0
    """measurements so far"""
    last: dict[str, dict[str, float | None]] = {}
    """figures of the last look, by metric and item; empty before one"""
    last_s: float = 0.0
    """duration of the last measurement, baselines included; 0: none yet"""
    open: Measuring | None = None
    asked: Literal["", "run", "baseline", "checkpoint", "settled"] = ""
    looked: int = -1
    """step of the last look; -1: none since the baseline"""
    doubt: bool = False
    """the last look asked a part of the probes, and all are asked next; see `looking.Doubt`"""
    cleared: dict[str, float] = {}
    """e-value of each metric when all probes were last asked"""
    good: int = -1
    """step of the last look at all probes without evidence against any metric"""
    goods: tuple[int, ...] = ()
    """steps of all such looks, ascending, the last being `good`: the first, and the latest; see GOODS_MAX"""
    references: str = ""
    """digest of the file with the distributions at the baseline's answers"""
    references_lost: str = ""
    """why it could not be used when the daemon started"""
    window: list[Learned] = []
    """the last steps, `since_good` and those since the good look before; without those that wrote nothing"""
    window_from: int = -1
    """`window` has every step after this one"""
    since: int = 0
    """steps since the last look"""
    busy_s: float = 0.0
    """their duration"""
    busy_since_whole_s: float = 0.0
    """duration of the steps since all probes were last asked"""
    full_s: float = 0.0
    """time to ask all probes"""
    window_ended: bool = False
    """a window of steps ended since the last look"""
    retry: Retry = NO_FAILURE
    error: str = ""
    unable: bool = False
    """the engine cannot answer the probes, in this life of the daemon"""
    incident: Incident | None = None
    incidents: int = 0
    totals: Totals = Totals()
    alarms_ns: tuple[int, ...] = ()
    """times of the alarms of the day, see `day.with_alarm`"""
    telling: Telling = msgspec.field(default_factory=Telling)

    @property
    def since_good(self) -> list[Learned]:
        """Steps since the last good look, as far as they are remembered (WINDOW_MAX)."""
        return [one for one in self.window if one.step > self.good]

    @property
    def unmeasured(self) -> Incident | None:
        """The incident whose restored weights still have to be measured; None: none."""
        one = self.incident
        return one if one and one.phase == "restored" and not one.restored and one.step != one.to else None

    def found_good(self, step: int) -> None:
        """Record a look without evidence against any metric."""
        before = [one for one in self.goods if one < step]
        self.good, self.goods = step, (*before[:1], *before[1:][-(GOODS_MAX - 2) :], step)

    def good_before(self, step: int) -> int:
        """The last remembered step before this one that a look found good; -1: none."""
        return max((one for one in self.goods if one < step), default=-1)


# Decides what an incident waits for, when its innocent examples may be learned again, and when the alarms of a day are
# too many.

WaitsFor = Literal["weights", "search", "steps", "person"]
"""weights: the last good ones come back; search: for the harmful examples; steps: innocent ones are repeated; person:
resumes, since the cause is unknown or the learning rate, alarms were too frequent, or the settings say so"""

ALARMS_MAX = 3
"""alarms within DAY_S after which nothing is learned until a person resumes"""
DAY_S = DAY_NS / SECOND_NS


def with_alarm(alarms_ns: Sequence[int], at_ns: int) -> tuple[int, ...]:
    """The alarms of the last 24 hours, with one more now. Later times date from before the clock was put back and do
    not count (`schedules.is_recent`)."""
    return (*(one for one in alarms_ns if is_recent(at_ns, one, DAY_S)), at_ns)


def stops(alarms_ns: Sequence[int]) -> bool:
    """True if these alarms stop training. Independent of the clock: training does not go on because a day is over, only
    after a person resumes, which empties the list."""
    return len(alarms_ns) >= ALARMS_MAX


def may_repeat(own: QualityState, incident: Incident) -> bool:
    """True if examples rolled back by the alarm may be learned again. If the cause is unknown or the
    learning rate, or alarms were too frequent, only a person can decide that."""
    if incident.phase != "named":
        return False
    unknown = incident.verdict in ("elsewhere", "rate") or incident.restored == "bad"
    return incident.resumed or (not unknown and not stops(own.alarms_ns))


def waits_for(own: QualityState, incident: Incident, manual: bool) -> WaitsFor:
    """The next thing that an open incident needs. `manual`: `[quality] resume` says so."""
    if incident.phase == "alarmed":
        return "weights"
    if incident.phase in ("restored", "searching"):
        return "search"
    if incident.phase == "stuck" or not may_repeat(own, incident):
        return "person"
    return "steps" if incident.resumed or not (manual or incident.step == incident.to) else "person"


MARGIN_MIN = 0.01
"""least margin when drops of several metrics are added"""

SCORINGS_MAX = 8
"""most scorings of a replay: a single step moves the damage, and the next ones undo it (docs/decisions/0042)"""


def scored_after(steps: int) -> tuple[int, ...]:
    """The numbers of steps of a window of `steps` after which a replay is scored, descending from all of them: evenly
    spaced in the last quarter."""
    quarter = max(1, steps // 4)
    count = min(SCORINGS_MAX, quarter)
    return tuple(steps - quarter * place // count for place in range(count))


def mean(scored: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean drop of each metric over these scorings of the same metrics."""
    return {name: math.fsum(drops[name] for drops in scored) / len(scored) for name in scored[0]}


def examples_of(steps: Sequence[Learned]) -> tuple[str, ...]:
    """Each example of these steps once, in the order of first learning."""
    return tuple(dict.fromkeys(one for step in steps for one in step.examples))


def total(drops: Mapping[str, float], margins: Mapping[str, float]) -> float:
    """The damage: sum over all metrics of the drop below the baseline, in margins."""
    return math.fsum(drop / unit(name, margins) for name, drop in sorted(drops.items()))


def unit(name: str, margins: Mapping[str, float]) -> float:
    """The drop of a metric that counts as one margin."""
    return max(MARGIN_MIN, margins.get(name, 0.0))


def searched(incident: Incident) -> Search:
    """The search of an incident after its measured replays."""
    replays = [one for one in incident.replays if one.drops is not None]
    return search_of(incident.window, incident.culprits_max, replays, incident.margins)


def search_of(
    window: Sequence[str], culprits_max: int, replays: Sequence[Asked], margins: Mapping[str, float]
) -> Search:
    """The search after these replays, all of which were measured."""
    own = search(len(window), culprits_max)
    places = {example: place for place, example in enumerate(window)}
    for one in replays:
        own = told(own, (places[example] for example in one.left_out), total(one.drops or {}, margins), one.lr_scale)
    return own
