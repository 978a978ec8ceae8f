"""Which learned lines are scored again, when, and what their figures say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.test_core_properties import folded
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.rescoring import SAID, gained, is_weak

LOSSES = st.floats(0.0, 20.0)


def begun(rescore: int = 64, **others: float) -> World:
    return World(changed(SETTINGS, rescore=rescore, **others)).up()


def rest(world: World) -> None:
    """Until nothing waits to be scored any more."""
    for _ in range(20):
        world.settle()
        world.pass_time(70)


def scores(world: World) -> list[ev.Rescored]:
    return [one for e in world.of(ev.ExamplesRescored) for one in e.scores]


def test_learned_lines_are_scored_once_the_newest_first_when_nothing_waits() -> None:
    world = begun()
    world.losses, world.after = {"a": 2.5}, {"a": 1.5, "b": 1.0}
    world.lines("a", "b", "c", "long")
    rest(world)
    (asked,) = world.of(ev.RescoreRequested)
    assert (asked.examples, asked.step) == (("c", "b", "a"), 3)
    assert [(one.example, one.learned_in, one.before, one.after) for one in scores(world)] == [
        ("c", 3, 1.0, 0.25), ("b", 2, 1.0, 1.0), ("a", 1, 2.5, 1.5)
    ]  # fmt: skip
    found = gained(world.state.rescoring.gains.values())
    assert found is not None and (found.scored, found.weak) == (3, 1)
    assert (found.before, found.after) == (pytest.approx(1.5), pytest.approx(2.75 / 3))
    assert world.memory == world.state.training.fingerprint and folded(world) == world.state


def test_an_answer_about_weights_that_are_gone_is_none() -> None:
    world = begun()
    world.lines("a", "b")
    world.settle_until(fx.RescoreExamples)
    world.asked.clear()
    world.give(inp.RollbackRequested(1, "t"))
    world.settle()
    assert world.give(inp.ExamplesScored(1, (inp.ScoredAgain("b", 0.1), inp.ScoredAgain("a", 0.1)))) == []
    rest(world)
    assert [one.example for one in scores(world)] == ["a"]


@given(LOSSES, LOSSES)
def test_weakly_learned_is_what_hardly_moved_and_is_still_unlikely(before: float, after: float) -> None:
    weak = is_weak(before, after)
    assert not weak or (after > SAID and after > 0.9 * before - 1e-9)
    assert weak or after <= SAID or after <= 0.9 * before + 1e-9
    assert not weak or is_weak(before, after + 1.0), "worse is never better"


@pytest.mark.parametrize(("before", "after", "weak"), [(2.31, 2.29, True), (2.31, 1.4, False), (0.4, 0.39, False)])
def test_examples_of_weakly(before: float, after: float, weak: bool) -> None:
    assert is_weak(before, after) is weak
