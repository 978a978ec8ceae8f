"""The state of scoring: answers that wait for a score."""

import msgspec

from apollod.core.schedules import NO_FAILURE, Retry


class ScoringState(msgspec.Struct):
    """Examples by id."""

    stripped: dict[str, None] = {}
    """text was removed from them, and they have no score"""
    candidates: dict[str, None] = {}
    """those of them that are to be scored as things are"""
    scored: dict[str, None] = {}
    """they have a score, and are not learned yet"""
    learned: dict[str, int] = {}
    """by the step that learned them: to be scored once more, does the model say it now?"""
    twice: dict[str, tuple[int, int]] = {}
    """those last scored once more: the step that learned them, and the version of the weights that said so"""
    open: str = ""
    """the one that the engine is asked about"""
    open_after: int = 0
    """the step that learned it; 0: it is its first score"""
    failed: dict[str, int] = {}
    """attempts that came to nothing, of examples that are tried again"""
    retry: Retry = NO_FAILURE
    """over all examples"""
