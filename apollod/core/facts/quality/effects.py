"""Effects of the quality guard: ask the probes, run a window again without some of its examples, tell of an alarm."""

from typing import ClassVar

import msgspec

from apollod.core.facts.dreams.contrast_cases import ContrastCase
from apollod.core.facts.quality.events import News
from apollod.core.facts.quality.looking import LessonCase
from apollod.core.facts.quality.state import Message
from apollod.core.kernel.effect import Effect


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
