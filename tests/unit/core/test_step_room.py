"""How many tokens one step may have with its anchors, and what it is left with where memory was planned for fewer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import draws
from support.taught_world import TaughtWorld, teaching
from support.world import SETTINGS, World, changed

from apollod.core import events as ev
from apollod.core.facts.holding import Anchor, HoldingState, Kin, filled, held_by
from apollod.core.facts.training import HELD_ROOM, bounds, practice_bound, tokens_bound
from apollod.core.settings import LessonSettings

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=12)


def holding(lengths: list[int]) -> HoldingState:
    return HoldingState({f"a{n}": Anchor(f"a{n}", "general", "", "", size, "d") for n, size in enumerate(lengths)})


def sizes(own: HoldingState, held: tuple[str, ...]) -> list[int]:
    return [own.anchors[one].tokens for one in held]


@draws(300, 3000)
@given(LENGTHS, st.integers(-9, 1000), st.sampled_from([None, Kin()]))
def test_anchors_that_are_held_have_room_and_all_are_held_where_they_fit(lengths, room, practice):
    own, settings = holding(lengths), LessonSettings()
    wished, held = (held_by(own, settings, 400, practice, room=most) for most in (1 << 40, room))
    assert filled(sizes(own, held)) <= max(0, room) and len(set(held)) == len(held)
    if filled(sizes(own, wished)) <= room:
        assert held == wished
    assert held or min(lengths) > room, "one is, if any fits"


@draws(300, 3000)
@given(st.integers(8, 5000), st.booleans(), st.integers(0, 6000), st.integers(0, 9000))
def test_the_figure_is_the_planned_one_and_never_above_the_one_that_is_wished_for(most, holds, planned, held):
    figure = tokens_bound(most, holds, planned)
    assert figure <= bounds(most, holds)[0] and (not planned or figure <= planned)
    assert list(bounds(most, holds)) == sorted(bounds(most, holds), reverse=True)
    room = practice_bound(most, figure, held)
    assert room <= most and room <= figure
    if held + most <= figure:
        assert room == most, "practices and anchors both fit"
    assert room >= min(most, figure // 2), "anchors leave half of it"


# --- as steps are decided -----------------------------------------------------------------------------------------


def of_tokens(world: World, step: ev.StepStarted) -> int:
    """Of a step with its anchors, as they go through the model."""
    tokens = {e.example: e.tokens for e in world.of(ev.ExampleEncoded)}
    tokens |= {e.anchor: e.tokens for e in world.of(ev.AnchorEncoded)}
    learned = [tokens[one] for one in ev.all_examples(step)]
    return (filled(learned) if step.together else max(learned)) + filled([tokens[one] for one in step.held])


@pytest.mark.parametrize(("planned", "practices", "anchors"), [(0, 3, 10), (1000, 3, 10), (900, 3, 8), (250, 1, 2)])
def test_a_practice_and_its_anchors_stay_within_the_figure_of_the_plan(planned, practices, anchors):
    """Both as they are, where they fit; else half of it is for practices."""
    world = TaughtWorld(teaching(hold=1.0))
    world.step_tokens, world.sizes = planned, {"shipped": 70, "": 100}
    world.up()
    world.want("who is x", "Ann")
    world.teach()
    steps = [step for step in world.of(ev.StepStarted) if world.taught_by(step.example)[0]]
    assert {len(ev.all_examples(step)) for step in steps} == {practices}
    assert {len(step.held) for step in steps} == {anchors}
    assert all(of_tokens(world, step) <= (planned or 1 << 40) for step in steps)
    assert world.says("who is x") == "Ann"


def plain(**settings: object) -> World:
    return World(changed(SETTINGS, hold=1.0, max_tokens=1000, **settings))


@pytest.mark.parametrize(
    ("planned", "tokens", "held"),
    [
        (0, 1000, 3),  # 0.3 of its tokens
        (1000 + HELD_ROOM, 1000, 3),
        (1000 + 128, 1000, 1),
        (1000, 1000, 0),
        (1000, 850, 1),
        (500, 1000, 0),
        (500, 450, 0),
        (500, 300, 1),
    ],
)
def test_a_long_example_is_learned_whatever_was_planned_and_holds_what_has_room(planned, tokens, held):
    world = plain()
    world.step_tokens, world.sizes = planned, {"a": tokens, "shipped": 90}
    world.up()
    world.lines("a")
    world.settle()
    (step,) = world.of(ev.StepStarted)
    assert len(step.held) == held and world.state.training.version == 1
    assert of_tokens(world, step) <= (planned or 1000 + HELD_ROOM) or not held


def test_each_of_several_examples_is_as_large_as_the_longest_not_as_all_of_them():
    world = plain(accumulate=4)
    world.sizes = {"a": 400, "b": 1000, "c": 700, "shipped": 100}
    world.up()
    world.lines("a", "b", "c")
    world.settle()
    assert [(len(one.examples), len(one.held)) for one in world.of(ev.StepStarted)] == [(3, 4)]


# --- memory that lacks all the same -------------------------------------------------------------------------------


def test_an_example_that_fails_with_its_anchors_is_learned_with_one_before_it_is_held_back():
    world = plain()
    world.sizes = {"tight": 900, "large": 900}
    world.up()
    world.lines("tight", "large", "a")
    world.settle()
    steps = {one.step: one for one in world.of(ev.StepStarted)}
    failed = world.of(ev.StepFailed)
    assert [(steps[one.step].example, len(steps[one.step].held), one.apart, one.fewer) for one in failed] == [
        ("tight", 4, True, True), ("large", 4, True, True), ("large", 1, False, False)
    ]  # fmt: skip
    assert [(one.example, len(one.held)) for one in world.of(ev.StepCompleted)] == [("tight", 1), ("a", 1)]
    assert set(world.state.review.held) == {"large"} and not world.state.queued
    assert not world.of(ev.TrainingHalted)


def test_a_batch_that_fails_is_learned_one_by_one_and_then_with_fewer_anchors():
    world = plain(accumulate=2)
    world.sizes = {"tight": 900, "b": 900}
    world.up()
    world.lines("tight", "b")
    world.settle()
    tried = [(ev.all_examples(one), len(one.held)) for one in world.of(ev.StepStarted)]
    assert tried == [(("tight", "b"), 4), (("tight",), 4), (("tight",), 1), (("b",), 4)]
    assert len(world.of(ev.StepCompleted)) == 2 and not world.state.review.held
