"""Facts: how good the model is, and what is done when it gets worse."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.kernel.event import Event
from apollod.core.quality.sequential import Metric

Why = Literal["baseline", "steps", "asked"]
"""Of a measurement. baseline: what later ones are compared with; steps: so many steps were learned; asked: somebody
wants to know."""


class Drop(msgspec.Struct, frozen=True):
    """How much worse a metric is than at the baseline, in its unit, and the interval of that look (95 %)."""

    drop: float
    low: float
    high: float


class QualityWished(Event, frozen=True):
    """Somebody wants a look, or (`baseline`) the model as it is now to be what later looks are compared with."""

    kind: ClassVar[str] = "quality.wished"
    by: str
    baseline: bool = False


class QualityRequested(Event, frozen=True):
    """Intent: the probes are asked, with the weights of `step`."""

    kind: ClassVar[str] = "quality.requested"
    number: int
    why: Why
    step: int

    def key(self) -> str:
        return str(self.number)


class QualityMeasured(Event, frozen=True):
    """Result. `probes`: digest of the set; `figures`: by metric, of each item, None where it could not be measured;
    `after`: what is known of each metric with this look, recorded since logarithms may differ between machines."""

    kind: ClassVar[str] = "quality.measured"
    number: int
    why: Why
    step: int
    probes: str
    figures: dict[str, dict[str, float | None]]
    after: dict[str, Metric] = {}
    tokens: int = 0
    seconds: float = 0.0
    left_out: dict[str, str] = {}
    """probes that come with apollod and were not asked, by id: the example that holds it, and where that is from"""

    def key(self) -> str:
        return str(self.number)


class QualityFailed(Event, frozen=True):
    """Result: the probes could not be asked, which counts as not passed: nothing is learned before they were."""

    kind: ClassVar[str] = "quality.failed"
    number: int
    reason: str
    retry_s: float = 0.0

    def key(self) -> str:
        return str(self.number)


class QualityAlarmed(Event, frozen=True):
    """The weights of `step` are worse than the baseline: `metrics`, the surest first, with their drops. Those of step
    `to`, the last that were good, are wanted back."""

    kind: ClassVar[str] = "quality.alarmed"
    incident: int
    step: int
    to: int
    metrics: tuple[str, ...]
    drops: dict[str, Drop]

    def key(self) -> str:
        return str(self.incident)


class QualitySettled(Event, frozen=True):
    """The incident is over, and steps go on. `taken_back`: how many steps were."""

    kind: ClassVar[str] = "quality.settled"
    incident: int
    how: str
    by: str
    taken_back: int = 0

    def key(self) -> str:
        return str(self.incident)
