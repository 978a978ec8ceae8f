"""The lesson under way."""

import msgspec

from apollod.core.lessons.stages import Stage


class Tried(msgspec.Struct, frozen=True, gc=False):
    """An answer of the stage, see `Said`."""

    wording: int
    passed: bool
    practice: bool
    greedy: bool


class Course(msgspec.Struct):
    """The lesson under way. `why`: see `LessonBegun`."""

    lesson: str
    stage: Stage
    why: str
    since_ns: int
    round: int
    tried: list[Tried] = []
    """answers of this stage"""
    todo: list[int] = []
    """practice wordings of this round that wait, the one under way first"""
    learned: int = 0
    """steps of this round"""
    example: str = ""
    """that waits for its step"""
    drift_from: float = 0.0
    """drift when it began"""
