"""The kinds of lessons, and the states that a behaviour goes through: pure tables, which are the definition.

A behaviour is a pattern learned by dreams (`core.rules.dreams`); its id is the pattern's name. RULES fold its state,
and PHASES map it to the phase that `apollod ctl pattern` shows. The view `lessons` of the journal repeats this in SQL
(a new state needs a line here and one in `migrations/views.sql`), and tests compare the two.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.stages import LessonState

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
