"""What the model was like, how far it is from that, and what is done about it."""

from typing import Literal

import msgspec

from apollod.core.quality.baseline import Baseline
from apollod.core.quality.events import Why
from apollod.core.quality.news import Telling
from apollod.core.quality.sequential import Metric

GUARD = "the quality guard"
"""as whom it asks for a rollback, and settles what no person has to see"""

Phase = Literal["alarmed", "restored", "stuck"]
"""alarmed: the last good weights are wanted back; restored: they are there; stuck: there is no way to them"""


class Incident(msgspec.Struct):
    """An alarm that is not settled."""

    number: int
    step: int
    to: int
    metrics: tuple[str, ...]
    phase: Phase = "alarmed"
    reason: str = ""


class Measuring(msgspec.Struct):
    """A measurement under way."""

    number: int
    why: Why
    step: int


class QualityState(msgspec.Struct):
    """Steps are those of the weights."""

    probes: str = ""
    """digest of the set that the baseline is of"""
    runs: list[dict[str, dict[str, float]]] = []
    """of the baseline, as long as there are too few"""
    baseline: dict[str, Baseline] = {}
    at: int = -1
    """step that the baseline is of"""
    metrics: dict[str, Metric] = {}
    number: int = 0
    """measurements so far"""
    open: Measuring | None = None
    asked: Literal["", "run", "baseline"] = ""
    looked: int = -1
    """step of the last look; -1: none since the baseline"""
    good: int = -1
    """step of the last look without an alarm"""
    failures: int = 0
    """in a row"""
    retry_ns: int = 0
    retry_s: float = 0.0
    error: str = ""
    incident: Incident | None = None
    incidents: int = 0
    alarms_ns: tuple[int, ...] = ()
    """of the day, see `day.with_alarm`"""
    telling: Telling = msgspec.field(default_factory=Telling)
