"""The section of `status` about lines scored again. Pure."""

from apollod.core.rescoring.gain import gained
from apollod.core.state import State
from apollod.wire.status_sections.learning_status import Learned


def learned_status(state: State) -> Learned:
    """Figures of the lines last scored again, if their steps were not taken back."""
    own = state.rescoring
    if (found := gained(own.gains.values())) is None:
        return Learned(waiting=len(own.waiting))
    return Learned(
        scored=found.scored, waiting=len(own.waiting), before=round(found.before, 4), after=round(found.after, 4),
        weak=found.weak,
    )  # fmt: skip
