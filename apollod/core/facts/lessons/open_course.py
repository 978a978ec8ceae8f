"""The lesson under way."""

import msgspec

from apollod.core.facts.lessons.stages import Stage


class Tried(msgspec.Struct, frozen=True, gc=False):
    """An answer in the present stage, see `Said`."""

    passed: bool
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
    proof: int = 0
    """number of the sequential test of this round, see `Lesson.proofs`; 0: none begun"""
    todo: list[int] = []
    """indices of practice wordings of this round that are not examples yet, the one under way first"""
    learned: int = 0
    """practices of this round that a step learned"""
    examples: dict[str, int] = {}
    """examples of this round that wait for their step: index of their wording"""
    drift_from: float = 0.0
    """drift when it began"""
