"""The states of a lesson, and its course as a table of transitions between stages.

Law: the table is the definition. A stage of `CALLS` waits for an answer from outside, requested repeatedly until an
event records it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

LessonState = Literal["waiting", "practising", "known", "fading", "replaced", "given up"]
"""waiting: its turn has not come; practising: it is under way; fading: it was known, and waits for its turn."""


class Stage(StrEnum):
    """Stage of the lesson under way."""

    WORDING = "wording"
    BASELINE = "baseline"
    """asked bare, before any step"""
    TOLD = "told"
    """asked with the told text, before any step"""
    PREPARING = "preparing"
    """the next practice wording of the round becomes an example"""
    LEARNING = "learning"
    """the examples of the round wait for their step"""
    TESTING = "testing"
    """asked bare, after a round of practice, or instead of one if the lesson was known before"""
    AGAIN = "again"
    """a known lesson is asked, briefly"""
    OVER = "over"


CALLS = frozenset(Stage) - {Stage.LEARNING, Stage.OVER}

TRANSITIONS: Mapping[tuple[Stage, str], Stage] = {
    (Stage.WORDING, "worded"): Stage.BASELINE,
    (Stage.BASELINE, "passed"): Stage.OVER,
    (Stage.BASELINE, "failed"): Stage.TOLD,
    (Stage.TOLD, "passed"): Stage.PREPARING,
    (Stage.PREPARING, "prepared"): Stage.LEARNING,
    (Stage.PREPARING, "more"): Stage.PREPARING,
    (Stage.PREPARING, "round over"): Stage.TESTING,
    (Stage.LEARNING, "prepared"): Stage.LEARNING,
    (Stage.LEARNING, "more"): Stage.PREPARING,
    (Stage.LEARNING, "round over"): Stage.TESTING,
    (Stage.TESTING, "passed"): Stage.OVER,
    (Stage.TESTING, "failed"): Stage.PREPARING,
}
"""(stage, happening) -> stage. A pair that is missing ends the course: a lesson that fails when told is given up, and
one that is asked again stays known or is fading. A practice that cannot be prepared ends without a step."""


def after(stage: Stage, happened: str) -> Stage:
    """The next stage."""
    return TRANSITIONS.get((stage, happened), Stage.OVER)
