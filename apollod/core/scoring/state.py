"""State: answers that wait for a score."""

import msgspec

from apollod.core.schedules import NO_FAILURE, Retry


class ScoringState(msgspec.Struct):
    """Examples by id."""

    stripped: dict[str, None] = {}
    """examples with stripped text and without a score"""
    candidates: dict[str, None] = {}
    """those of them to be scored, by the present settings"""
    scored: dict[str, None] = {}
    """examples with a score that are not learned yet"""
    learned: dict[str, int] = {}
    """learned examples to be scored once more: the step that learned each"""
    twice: dict[str, tuple[int, int]] = {}
    """examples last scored once more: the step that learned each, and the scoring weights version"""
    open: str = ""
    """example of the open question"""
    open_after: int = 0
    """the step that learned it; 0: first score"""
    failed: dict[str, int] = {}
    """attempts that came to nothing, of examples that are tried again"""
    retry: Retry = NO_FAILURE
    """over all examples"""
