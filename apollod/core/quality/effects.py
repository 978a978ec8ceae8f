"""Effects of the quality guard: ask the probes, run a window again without some of its examples, tell of an alarm."""

from typing import ClassVar

import msgspec

from apollod.core.dreams.contrast_cases import ContrastCase
from apollod.core.kernel.effect import Effect
from apollod.core.quality.events import News
from apollod.core.quality.lesson_group import LessonCase
from apollod.core.quality.news import Message


class MeasureQuality(Effect, frozen=True):
    """Ask the model the probes; answered by `ProbesAnswered` or `ProbesFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    number: int
    share: float = 1.0
    """of each group of probes"""
    baseline: bool = False
    """keep what is thought of every token, which later weights are compared with"""
    references: str = ""
    """digest of the file of the baseline's; empty: there is none"""
    contrasts: tuple[ContrastCase, ...] = ()
    """of patterns, asked besides the probes of the configuration"""
    lessons: tuple[LessonCase, ...] = ()
    """asked besides, whatever `share` is"""
    without: tuple[str, ...] = ()
    """groups that are not asked"""
    known: str = ""
    """digest of the probes that the baseline is of, which a look asks; empty: whatever probes there are"""
    tries: bool = False
    """of a large group a few are asked first, and the others only where those tell anything"""


class ReplayWindow(Effect, frozen=True):
    """Learn in another process what leads from step `first` to step `last`, without the examples `left_out`, and
    measure. Answered by `WindowReplayed` or `WindowReplayFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("incident", "number")
    incident: int
    number: int
    first: int
    last: int
    left_out: tuple[str, ...]
    items: dict[str, tuple[str, ...]]
    """by metric, what is measured"""
    references: str
    """digest of the file with the baseline's answers"""
    limit_s: float
    """after which it counts as failed"""
    lr_scale: float = 1.0
    """of the learning rate of each step, the share that it is run at"""


class RankedStep(msgspec.Struct, frozen=True, gc=False):
    """An example as its steps learned it: its tokens have this `digest`; `lr`: the share that it had of their learning
    rates, all together."""

    example: str
    digest: str
    objective: str
    lr: float


class RankExamples(Effect, frozen=True):
    """Have the trainer say how far the steps of each of these examples would move the items that fell, with the weights
    as they are. Answered by `ExamplesRanked`, unless the trainer ends."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("incident", "number")
    incident: int
    number: int
    suspects: tuple[RankedStep, ...]
    items: dict[str, tuple[str, ...]]
    """by metric, what is watched"""
    weights: dict[str, float]
    """by metric, of the mean of its items"""
    references: str
    """digest of the file with the baseline's answers"""


class EndSearch(Effect, frozen=True):
    """Remove what the replays of a search share: none follows. Not answered."""


class TellAlarm(Effect, frozen=True):
    """Tell the person or program of `[quality] on_alarm` of an incident; answered by `AlarmTold`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("incident", "about")
    incident: int
    about: News
    message: Message
