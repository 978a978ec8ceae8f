"""Effects of the quality guard: ask the probes, run a window again without some of its examples, tell of an alarm.
Inputs: probes are answered or fail, a look is requested, an alarm was delivered."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.dreams.held_out_rounds import ContrastCase
from apollod.core.facts.quality.events import News
from apollod.core.facts.quality.looking import LessonCase
from apollod.core.facts.quality.state import Message
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.input import Input


class MeasureQuality(Effect, frozen=True):
    """Ask the model the probes; answered by `ProbesAnswered` or `ProbesFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    number: int
    share: float = 1.0
    """share of each group of probes to ask"""
    baseline: bool = False
    """keep the distribution at every token, as reference for later weights"""
    references: str = ""
    """digest of the file with the baseline's distributions; empty: none"""
    contrasts: tuple[ContrastCase, ...] = ()
    """cases of patterns, asked besides the configured probes"""
    lessons: tuple[LessonCase, ...] = ()
    """lessons asked besides, for any `share`"""
    without: tuple[str, ...] = ()
    """groups that are left out"""
    known: str = ""
    """digest of the baseline's probes, which a look asks; empty: the present probes"""
    tries: bool = False
    """of a large group ask a few first, and the others only if those are informative"""


class ReplayWindow(Effect, frozen=True):
    """Learn the steps from `first` to `last` in another process, without the examples `left_out`, and measure. Answered
    by `WindowReplayed` or `WindowReplayFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("incident", "number")
    incident: int
    number: int
    first: int
    last: int
    left_out: tuple[str, ...]
    items: dict[str, tuple[str, ...]]
    """items to measure, by metric"""
    references: str
    """digest of the file with the baseline's answers"""
    limit_s: float
    """seconds after which it counts as failed"""
    lr_scale: float = 1.0
    """share of the learning rate of each step at which it is run"""


class RankedStep(msgspec.Struct, frozen=True, gc=False):
    """An example as its steps learned it: `digest`: of its tokens; `lr`: sum of its shares of their learning rates."""

    example: str
    digest: str
    objective: str
    lr: float


class RankExamples(Effect, frozen=True):
    """Have the trainer estimate how far the steps of each of these examples would move the failed items, with the
    present weights. Answered by `ExamplesRanked`, unless the trainer ends."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("incident", "number")
    incident: int
    number: int
    suspects: tuple[RankedStep, ...]
    items: dict[str, tuple[str, ...]]
    """watched items, by metric"""
    weights: dict[str, float]
    """weight of the mean of a metric's items, by metric"""
    references: str
    """digest of the file with the baseline's answers"""


class EndSearch(Effect, frozen=True):
    """Remove the files shared by the replays of a search, which is over. Not answered."""


class TellAlarm(Effect, frozen=True):
    """Notify `[quality] on_alarm` of an incident; answered by `AlarmTold`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("incident", "about")
    incident: int
    about: News
    message: Message


class ProbesAnswered(Input, frozen=True):
    """Answers `MeasureQuality`: see `QualityMeasured`. `first`, `last`: first and last version of the weights
    meanwhile."""

    number: int
    probes: str
    figures: dict[str, dict[str, float | None]]
    first: int
    last: int
    tokens: int = 0
    seconds: float = 0.0
    references: str = ""
    left_out: dict[str, str] = {}
    share: float = 0.0
    """share of the probes that was asked: more than requested if groups are small; 0: as requested"""
    contrasts: tuple[ContrastCase, ...] = ()
    """for a baseline, the cases of patterns that were asked"""
    answers: dict[str, str] = {}
    """by probe, the beginning of each answer, without secrets"""


class ProbesFailed(Input, frozen=True):
    """`MeasureQuality` failed. `cause`: unable, the engine cannot give such answers; engine, it gave none this time;
    other, a cause outside the engine."""

    number: int
    reason: str
    cause: Literal["unable", "engine", "other"] = "other"


class WindowReplayed(Input, frozen=True):
    """Answers `ReplayWindow`. `drops`: for a loss its value, nats a token; else the lost probability."""

    incident: int
    number: int
    drops: dict[str, float]
    steps: int
    seconds: float
    fingerprint: str = ""


class WindowReplayFailed(Input, frozen=True):
    """`ReplayWindow` failed. `for_good`: another try would not help."""

    incident: int
    number: int
    reason: str
    for_good: bool = False


class ExamplesRanked(Input, frozen=True, tag="examples-ranked"):
    """Answers `RankExamples`: see `QualityRanked`. `error`: why nothing could be ranked."""

    incident: int
    number: int
    scores: dict[str, float] = {}
    unscored: dict[str, str] = {}
    seconds: float = 0.0
    error: str = ""


class QualityWanted(Input, frozen=True):
    """A user requests a measurement now, or (`baseline`) the present model as the new baseline."""

    by: str
    baseline: bool = False


class AlarmTold(Input, frozen=True):
    """Answers `TellAlarm`. `error`: why it was not delivered; empty: it was."""

    incident: int
    about: News
    error: str = ""
