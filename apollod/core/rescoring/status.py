"""The part of `status` about lines scored again."""

import msgspec

from apollod.core.rescoring.gain import gained
from apollod.core.state import State


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """Gain by learning, on the lines last scored again, see [trainer] rescore."""

    scored: int = 0
    waiting: int = 0
    """lines to be scored again when nothing waits to be learned"""
    before: float | None = None
    """mean loss before learning, nats a token; null: none was scored"""
    after: float | None = None
    """mean loss when they were scored again"""
    weak: int = 0
    """number of these that hardly improved: loss above 0.5 and less than a tenth below its value before"""


def status(state: State) -> Learned:
    """Figures of the lines last scored again, if their steps were not taken back."""
    own = state.rescoring
    if (found := gained(own.gains.values())) is None:
        return Learned(waiting=len(own.waiting))
    return Learned(
        scored=found.scored, waiting=len(own.waiting), before=round(found.before, 4), after=round(found.after, 4),
        weak=found.weak,
    )  # fmt: skip
