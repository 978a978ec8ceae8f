"""Effects of rescoring: the trainer scores examples that were learned."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class RescoreExamples(Effect, frozen=True):
    """Have the trainer score these examples (whose tokens have these `digests`) with the present weights. It stops at
    the next other request."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    number: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
