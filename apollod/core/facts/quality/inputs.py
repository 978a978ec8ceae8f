"""Inputs of the quality guard: probes are answered or fail, a look is requested, an alarm was delivered."""

from typing import Literal

from apollod.core.facts.dreams.contrast_cases import ContrastCase
from apollod.core.facts.quality.events import News
from apollod.core.kernel.input import Input


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
