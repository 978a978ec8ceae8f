"""The part of `status` about captured answers."""

import msgspec

from apollod.core.state import State


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """Captured answers of the engine."""

    mode: str = ""
    """`off`, `feedback` or `all`; empty if the state was folded from a journal"""
    answers: int = 0
    """number of kept answers"""
    rated: int = 0
    """rated answers, over the life of the journal"""


def status(state: State, mode: str, answers: int) -> Capture:
    """Captured answers: `answers` are kept, as counted in their store."""
    return Capture(mode=mode, answers=answers, rated=state.feedback.rated)
