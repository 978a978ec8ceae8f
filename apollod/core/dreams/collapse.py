"""What of a practice shows a collapse. Whether there is one is not looked for yet."""

from collections.abc import Sequence

import msgspec

from apollod.core.dreams.scenario import Sketch


class Dreamt(msgspec.Struct, frozen=True):
    """A practice. `logprob`: mean of the answer's tokens, natural logarithm; None: not known."""

    scenario: Sketch
    answer: Sketch | None = None
    logprob: float | None = None


def collapse(recent: Sequence[Dreamt], earliest: Sequence[Dreamt]) -> str:
    """Why these are no practice any more; empty: they are."""
    return ""
