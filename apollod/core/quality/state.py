"""State of the quality guard: the baseline, how far the model is from it, and what is done about that."""

from typing import Literal

import msgspec

from apollod.core.dreams.contrast_cases import ContrastCase
from apollod.core.quality.baseline import Baseline
from apollod.core.quality.events import VerdictKind, Why
from apollod.core.quality.news import Telling
from apollod.core.quality.sequential import Metric
from apollod.core.schedules import NO_FAILURE, Retry
from apollod.core.training.learned import Learned

GUARD = "the quality guard"
"""as whom it asks for a rollback, and settles what no person has to see"""

Phase = Literal["alarmed", "restored", "searching", "named", "stuck"]
"""alarmed: the last good weights are wanted back; restored: they are there; searching: replays find out which examples
did it; named: that is known, or that it is not; stuck: there is no way to the last good weights"""

Restored = Literal["", "good", "bad", "unknown"]
"""The verdict on the weights that came back after an alarm. Empty: not measured yet; good; bad: worse than the
baseline, too, and no earlier ones are known to be good; unknown: they cannot be measured."""

WINDOW_MAX = 2000
"""steps since the last good look that are remembered; of more nobody asks which ones did it"""

GOODS_MAX = 8
"""steps that are remembered as good, that of the baseline among them"""


class Asked(msgspec.Struct):
    """A replay of a search. `drops`: None as long as it has no answer; `lr_scale` as in `QualityReplayBegun`."""

    left_out: tuple[str, ...]
    drops: dict[str, float] | None = None
    lr_scale: float = 1.0


class Ranking(msgspec.Struct):
    """A ranking by first order, where no replay can be run."""

    number: int = 0
    """how often it was asked for"""
    open: bool = False
    ended: int = 0
    """how often the trainer ended in the middle"""
    scores: dict[str, float] | None = None
    """None: there are none yet"""
    unscored: tuple[str, ...] = ()
    gave_up: str = ""
    """why there will be none"""


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
    """from `to` on"""
    whole: bool = True
    """are these all of them"""
    replays: list[Asked] = []
    replays_max: int = 0
    culprits_max: int = 0
    retry: Retry = NO_FAILURE
    """of the open replay"""
    gave_up: str = ""
    """why no other replay is run"""
    ranking: Ranking = msgspec.field(default_factory=Ranking)
    verdict: VerdictKind | None = None
    culprits: tuple[str, ...] = ()
    again: tuple[Learned, ...] = ()
    """what is innocent, to be learned again"""
    taken_back: int = 0
    """steps"""
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
    """measurements"""
    taken_back: int = 0
    """steps, by alarms"""
    replays: int = 0
    """of searches, those that were measured"""


class QualityState(msgspec.Struct):
    """The baseline, the looks since, and the incident under way. Steps are those of the weights."""

    probes: str = ""
    """digest of the set that the baseline is of"""
    contrasts: tuple[ContrastCase, ...] = ()
    """of patterns, that are in this set"""
    runs: list[dict[str, dict[str, float]]] = []
    """of the baseline, as long as there are too few"""
    baseline: dict[str, Baseline] = {}
    silent: dict[str, tuple[int, int]] = {}
    """groups that looks do not ask, see `QualityRequested`: how many items passed at the baseline, of how many"""
    at: int = -1
    """step that the baseline is of"""
    metrics: dict[str, Metric] = {}
    number: int = 0
    """measurements so far"""
    last: dict[str, dict[str, float | None]] = {}
    """figures of the last look, by metric, of each item; empty before one"""
    last_s: float = 0.0
    """that the last measurement took, one of a baseline included; 0: there was none"""
    open: Measuring | None = None
    asked: Literal["", "run", "baseline", "checkpoint", "settled"] = ""
    looked: int = -1
    """step of the last look; -1: none since the baseline"""
    doubt: bool = False
    """it asked a part of the probes, and all are asked next; see `looking.Doubt`"""
    cleared: dict[str, float] = {}
    """e-value of each metric when all probes were asked last"""
    good: int = -1
    """step of the last look at all probes that spoke against no metric"""
    goods: tuple[int, ...] = ()
    """steps of all such looks, ascending, the last being `good`: the first, and the latest; see GOODS_MAX"""
    references: str = ""
    """digest of the file with what was thought of the baseline's answers"""
    references_lost: str = ""
    """why it could not be used when the daemon started"""
    window: list[Learned] = []
    """the last steps, `since_good` and those since the good look before; those that wrote nothing left out"""
    window_from: int = -1
    """it has every step after this one"""
    since: int = 0
    """steps since the last look"""
    busy_s: float = 0.0
    """that they took"""
    busy_since_whole_s: float = 0.0
    """that steps took since all probes were asked last"""
    full_s: float = 0.0
    """that asking all probes takes"""
    window_ended: bool = False
    """since the last look"""
    retry: Retry = NO_FAILURE
    error: str = ""
    unable: bool = False
    """the engine cannot answer the probes, in this life of the daemon"""
    incident: Incident | None = None
    incidents: int = 0
    totals: Totals = Totals()
    alarms_ns: tuple[int, ...] = ()
    """of the day, see `day.with_alarm`"""
    telling: Telling = msgspec.field(default_factory=Telling)

    @property
    def since_good(self) -> list[Learned]:
        """Steps since the last good look, as far as they are remembered (WINDOW_MAX)."""
        return [one for one in self.window if one.step > self.good]

    @property
    def unmeasured(self) -> Incident | None:
        """The incident, while the weights that came back for it have to be measured."""
        one = self.incident
        return one if one and one.phase == "restored" and not one.restored and one.step != one.to else None

    def found_good(self, step: int) -> None:
        """Record a look that spoke against no metric."""
        before = [one for one in self.goods if one < step]
        self.good, self.goods = step, (*before[:1], *before[1:][-(GOODS_MAX - 2) :], step)

    def good_before(self, step: int) -> int:
        """The last step before this one that a look found good; -1: none is remembered."""
        return max((one for one in self.goods if one < step), default=-1)
