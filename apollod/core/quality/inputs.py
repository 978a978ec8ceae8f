"""What can happen: probes are answered, or cannot be; somebody wants to know."""

from apollod.core.kernel.input import Input


class ProbesAnswered(Input, frozen=True):
    """Answers `MeasureQuality`: see `QualityMeasured`. `first`, `last`: versions of the weights that were seen."""

    number: int
    probes: str
    figures: dict[str, dict[str, float | None]]
    first: int
    last: int
    tokens: int = 0
    seconds: float = 0.0
    left_out: dict[str, str] = {}


class ProbesFailed(Input, frozen=True):
    """There is no answer to `MeasureQuality`."""

    number: int
    reason: str


class QualityWanted(Input, frozen=True):
    """Somebody wants a measurement now, or (`baseline`) that it is compared with the model as it is now."""

    by: str
    baseline: bool = False
