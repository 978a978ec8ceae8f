"""The states and kinds of lessons, and the course of the one under way as a table of transitions between stages.

Law: the table is the definition. A stage of `CALLS` waits for an answer from outside, requested repeatedly until an
event records it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from apollod.core.facts.intake.events import Given

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


# A behaviour is a pattern learned by dreams (`core.rules.dreams`); its id is the pattern's name. RULES fold its state,
# and PHASES map it to the phase that `apollod ctl pattern` shows. The view `lessons` of the journal repeats this in SQL
# (a new state needs a line here and one in `migrations/views.sql`), and tests compare the two.

LessonKind = Literal["statement", "correction", "document", "behaviour"]
"""statement: one fact in a sentence; correction: the right answer to a question; document: a fact from a document;
behaviour: something that the model does when told, and has to do untold"""
Phase = Literal["active", "settled", "retired"]

PHASES: Mapping[LessonState, Phase] = {
    "waiting": "active",
    "practising": "active",
    "fading": "active",
    "known": "settled",
    "replaced": "retired",
    "given up": "retired",
}


class Rule(NamedTuple):
    """An event takes a behaviour out of one of these states into another."""

    out_of: tuple[LessonState, ...]
    into: LessonState


STANDING: tuple[LessonState, ...] = ("waiting", "practising", "known", "fading", "given up")
RULES: Mapping[str, Rule] = {
    "pattern.added": Rule(STANDING, "waiting"),
    "dream.requested": Rule(("waiting", "fading"), "practising"),
    "dream.tested": Rule(("waiting", "fading"), "practising"),
    "pattern.settled": Rule(STANDING, "known"),
    "pattern.unsettled": Rule(STANDING, "fading"),
    "pattern.retired": Rule(STANDING, "given up"),
}
"""by kind of event. A behaviour begins as `waiting`, and is `replaced`, which no event changes, once another definition
has its name."""


def kind_of(given: Given) -> LessonKind:
    """The kind of a lesson that teaches a fact."""
    if given.document:
        return "document"
    return "statement" if given.statement else "correction"


def behaviour_after(state: LessonState, kind: str) -> LessonState:
    """The state of a behaviour after an event of this kind; unchanged by events without a rule."""
    rule = RULES.get(kind)
    return rule.into if rule is not None and state in rule.out_of else state


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
