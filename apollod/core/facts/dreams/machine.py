"""The course of one dream, as a table: which event takes it from which stage to which.

Law: the table is the definition. A stage of `CALLS` waits for an answer from outside, requested repeatedly until an
event records it; the others wait for the trainer, or are the end.
"""

from collections.abc import Mapping
from enum import StrEnum

from apollod.core.facts.dreams.events import Purpose


class Stage(StrEnum):
    """The stage of a dream."""

    IMAGINING = "imagining"
    ANSWERING = "answering"
    JUDGING = "judging"
    JUDGING_BETTER = "judging better"
    """judging the answer written in place of a bad one"""
    LEARNING = "learning"
    """its example waits for its step"""
    TESTING = "testing"
    TESTING_CONTRAST = "testing contrast"
    OVER = "over"


CALLS = frozenset(Stage) - {Stage.LEARNING, Stage.OVER}

TRANSITIONS: Mapping[tuple[Purpose, Stage, str], Stage] = {
    ("held-out", Stage.IMAGINING, "imagined"): Stage.OVER,
    ("situation", Stage.IMAGINING, "imagined"): Stage.OVER,
    ("practice", Stage.IMAGINING, "imagined"): Stage.ANSWERING,
    ("practice", Stage.ANSWERING, "answered"): Stage.JUDGING,
    ("practice", Stage.JUDGING, "good"): Stage.LEARNING,
    ("practice", Stage.JUDGING, "bettered"): Stage.JUDGING_BETTER,
    ("practice", Stage.JUDGING_BETTER, "good"): Stage.LEARNING,
    ("practice", Stage.LEARNING, "trained"): Stage.OVER,
    ("contrast", Stage.IMAGINING, "imagined"): Stage.ANSWERING,
    ("contrast", Stage.ANSWERING, "answered"): Stage.JUDGING,
    ("contrast", Stage.JUDGING, "good"): Stage.OVER,
    ("variation", Stage.IMAGINING, "imagined"): Stage.TESTING,
    ("variation", Stage.TESTING, "tested"): Stage.TESTING_CONTRAST,
    ("variation", Stage.TESTING_CONTRAST, "tested"): Stage.OVER,
}
"""(purpose, stage, happening) -> stage. A dream is abandoned if its key is missing, for example after a verdict that is
neither good nor with a better answer."""


def after(purpose: Purpose, stage: Stage, happened: str) -> Stage | None:
    """The next stage; None: the dream is abandoned."""
    return TRANSITIONS.get((purpose, stage, happened))
