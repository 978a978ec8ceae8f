"""The part of `status` about comparisons of engine and trainer."""

import msgspec

from apollod.core.kernel.composing import composed
from apollod.core.state import State


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """The newest comparison of trainer and engine: the difference of their log-probabilities, and the equality of
    tensors."""

    step: int
    """version of the weights that were compared"""
    aligned: bool
    mean_abs_diff: float
    """of the log-probabilities of the probe text, in nats"""
    max_abs_diff: float
    tokens: int
    """length of the probe text"""
    bound: float
    """mean difference above which training halts"""
    seconds: float
    usual: float = 0.0
    """usual mean difference; 0 while none was measured"""
    same_at: int | None = None
    """newest version at which every tensor was the same by digest; null while none was compared"""


def status(state: State) -> Alignment | None:
    """The newest result, if there is one."""
    own = state.alignment
    return None if own.measured is None else composed(Alignment, own.measured, same_at=own.same)
