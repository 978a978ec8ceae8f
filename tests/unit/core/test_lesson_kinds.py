"""The kinds of lessons and the states of behaviours, by their tables."""

from typing import get_args

import pytest
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.state import Course
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.stages import PHASES, RULES, LessonKind, LessonState, behaviour_after, kind_of

STATES = get_args(LessonState)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (Given(statement="It is there."), "statement"),
        (Given(question="Where?", answer="There."), "correction"),
        (Given("It is there.", "Where?", "There."), "statement"),
        (Given(statement="It is there.", document="NOTES.md"), "document"),
        (Given(question="Where?", answer="There.", document="NOTES.md"), "document"),
    ],
)
def test_a_fact_is_of_the_kind_that_it_was_given_as(given: Given, kind: str) -> None:
    assert kind_of(given) == kind and kind in get_args(LessonKind)


@pytest.mark.parametrize(
    ("kind", "into"),
    [
        ("pattern.added", ["waiting", "waiting", "waiting", "waiting", "replaced", "waiting"]),
        ("dream.requested", ["practising", "practising", "known", "practising", "replaced", "given up"]),
        ("dream.tested", ["practising", "practising", "known", "practising", "replaced", "given up"]),
        ("pattern.settled", ["known", "known", "known", "known", "replaced", "known"]),
        ("pattern.unsettled", ["fading", "fading", "fading", "fading", "replaced", "fading"]),
        ("pattern.retired", ["given up"] * 4 + ["replaced", "given up"]),
        ("dream.judged", list(STATES)),
    ],
)
def test_an_event_moves_a_behaviour_from_each_state(kind: str, into: list[str]) -> None:
    assert [behaviour_after(state, kind) for state in STATES] == into
    assert kind in ev.KINDS


def test_each_state_has_a_phase_and_each_rule_names_an_event() -> None:
    assert [PHASES[state] for state in STATES] == ["active", "active", "settled", "active", "retired", "retired"]
    assert RULES.keys() <= ev.KINDS.keys()
    assert Course(PATTERN, "p", 0).state == RULES["pattern.added"].into


def test_a_life_of_a_behaviour_in_the_states_of_lessons() -> None:
    world = DreamingWorld(with_patterns(PATTERN, dream={"mode": "off"})).up()

    def state() -> str:
        return world.state.dreams.courses["ask"].state

    assert state() == "waiting"
    world.give(inp.DreamingStarted("p"))
    assert state() == "practising"
    world.dream()
    assert state() == "known" and world.state.dreams.courses["ask"].moved_ns
    world.give(inp.RollbackRequested(0, "p"))
    seen = list[str]()
    while world.state.rollback.wanted or world.state.rollback.under_way or state() == "known":
        world.settle()
        seen.append(state())
    assert state() == "fading" and world.state.dreams.courses["ask"].phase == "active"
    world.give(inp.DreamingStarted("p"))
    world.dream(2)
    assert state() == "practising"
    world.give(inp.PatternUnwanted("ask", "p"))
    assert (state(), world.state.dreams.courses["ask"].reason) == ("given up", "retired by p")
    world.give(inp.DreamingStopped("p", "stopped by p"))
    world.give(inp.PatternWanted(PATTERN, "p"))
    assert state() == "waiting" and not world.state.dreams.replaced
