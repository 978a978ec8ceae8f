"""Effects: score an answer."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class ScoreExample(Effect, frozen=True):
    """Have the engine score the last learned answer of an example, with and without the stripped text."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("example", "after")
    example: str
    after: int = 0
    """the step that learned it, see `ExampleScored`"""
