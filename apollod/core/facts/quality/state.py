"""State of the quality guard: the baseline, the looks since, and the incident under way."""

from typing import Literal

import msgspec

from apollod.core.facts.dreams.contrast_cases import ContrastCase
from apollod.core.facts.quality.baseline import Baseline
from apollod.core.facts.quality.events import VerdictKind, Why
from apollod.core.facts.quality.news import Telling
from apollod.core.facts.quality.sequential import Metric
from apollod.core.facts.training import Learned
from apollod.core.schedules import NO_FAILURE, Retry

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
