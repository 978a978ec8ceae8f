"""What the world is asked to do: ask the probes."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class MeasureQuality(Effect, frozen=True):
    """Answered by `ProbesAnswered` or `ProbesFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    number: int
