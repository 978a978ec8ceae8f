"""Effects: plan from the journal how examples can be forgotten."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class PlanForget(Effect, frozen=True):
    """Read from the journal which of the last `most` steps of weights `version` learned these examples, and what has to
    be repeated without them."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("version", "examples")
    examples: tuple[str, ...]
    version: int
    most: int
