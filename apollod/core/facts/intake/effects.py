"""Effects: tokenise examples."""

from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

from apollod.core.kernel.effect import Effect

ENCODE_BATCH = 64  # examples tokenised per message; bounds what the trainer does between two steps


class EncodeExamples(Effect, frozen=True):
    """Have the trainer tokenise these examples, whose records are in the journal. `untrained`: fingerprint of the
    weights before the first step."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("examples",)
    examples: tuple[str, ...]
    untrained: str = ""


def encode(examples: Iterable[str], untrained: str) -> list[Effect]:
    """Tokenise the first of `examples`; the rest follows when these are answered."""
    first = tuple(islice(examples, ENCODE_BATCH))
    return [EncodeExamples(first, untrained)] if first else []
