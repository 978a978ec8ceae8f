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
from apollod.core.rules.rescoring import AT_ONCE

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


def test_a_sample_of_a_long_file_is_scored_and_the_trainer_rests_between_requests() -> None:
    world = begun(rescore=12, rescore_share=0.01)
    world.lines(*(f"e{n}" for n in range(100)))
    world.settle()
    assert [one.example for one in scores(world)] == [f"e{n}" for n in range(99, 99 - AT_ONCE, -1)]
    world.pass_time(5)
    world.settle()
    assert len(world.of(ev.RescoreRequested)) == 1, "0.1 s in 10 s at most"
    rest(world)
    assert {one.example for one in scores(world)} == {f"e{n}" for n in range(88, 100)}


def test_what_is_learned_in_one_step_has_each_its_own_loss() -> None:
    world = begun(accumulate=3)
    world.losses = {"a": 1.0, "b": 2.0, "c": 3.0}
    world.lines("a", "b", "c")
    rest(world)
    assert {one.example: one.before for one in scores(world)} == world.losses


@pytest.mark.parametrize("why", ["off", "known", "dream", "lesson"])
def test_what_is_not_scored(why: str) -> None:
    world = begun(rescore=0 if why == "off" else 64)
    world.losses = {"a": 1e-6 if why == "known" else 1.0}
    world.lines("a", source="lesson:L1" if why == "lesson" else "f", tier="dream" if why == "dream" else "bulk")
    rest(world)
    assert not world.of(ev.RescoreRequested) and len(world.of(ev.StepCompleted)) == 1


def test_what_waits_to_be_learned_comes_first_and_a_pause_is_no_obstacle() -> None:
    world = begun()
    world.lines("a")
    world.settle_until(fx.RescoreExamples)
    world.lines("b", source="g")
    world.settle()
    assert world.of(ev.ExamplesRescored)[0].scores == (), "it gave way"
    world.give(inp.PauseRequested("t"))
    world.lines("c", source="h")
    rest(world)
    assert sorted(one.example for one in scores(world)) == ["a", "b"] and world.state.intake.pending == 1


def test_what_was_taken_back_has_no_figures_and_the_rest_is_scored_by_the_weights_that_are_left() -> None:
    world = begun()
    world.lines("a", "b", "c")
    rest(world)
    world.give(inp.RollbackWanted(2, "t"))
    rest(world)
    assert world.state.training.version == 2 and sorted(world.state.rescoring.gains) == ["a", "b"]
    assert [e.step for e in world.of(ev.ExamplesRescored)] == [3, 2]


def test_an_answer_about_weights_that_are_gone_is_none() -> None:
    world = begun()
    world.lines("a", "b")
    world.settle_until(fx.RescoreExamples)
    world.asked.clear()
    world.give(inp.RollbackWanted(1, "t"))
    world.settle()
    assert world.give(inp.ExamplesScored(1, (inp.ScoredAgain("b", 0.1), inp.ScoredAgain("a", 0.1)))) == []
    rest(world)
    assert [one.example for one in scores(world)] == ["a"]


def test_what_a_trainer_died_over_or_could_not_score_is_not_asked_about_again() -> None:
    world = begun()
    world.lines("a", "b")
    world.settle_until(fx.RescoreExamples)
    world.exit("trainer")
    world.pass_time(70)
    rest(world)
    assert not scores(world) and len(world.of(ev.RescoreRequested)) == 1
    world.lines("c", source="g")
    world.settle_until(fx.RescoreExamples)
    world.asked.clear()
    world.give(inp.ExamplesScored(2, (), error="out of memory"))
    rest(world)
    assert [(one.example, one.after, one.reason) for one in scores(world)] == [("c", None, "out of memory")]
    assert gained(world.state.rescoring.gains.values()) is None


def test_after_a_crash_it_is_asked_for_again() -> None:
    world = begun()
    world.lines("a")
    world.settle_until(fx.RescoreExamples)
    world = world.crash_and_return()
    rest(world)
    assert [one.example for one in scores(world)] == ["a"] and len(world.of(ev.RescoreRequested)) == 2


@given(LOSSES, LOSSES)
def test_weakly_learned_is_what_hardly_moved_and_is_still_unlikely(before: float, after: float) -> None:
    weak = is_weak(before, after)
    assert not weak or (after > SAID and after > 0.9 * before - 1e-9)
    assert weak or after <= SAID or after <= 0.9 * before + 1e-9
    assert not weak or is_weak(before, after + 1.0), "worse is never better"


@pytest.mark.parametrize(("before", "after", "weak"), [(2.31, 2.29, True), (2.31, 1.4, False), (0.4, 0.39, False)])
def test_examples_of_weakly(before: float, after: float, weak: bool) -> None:
    assert is_weak(before, after) is weak
