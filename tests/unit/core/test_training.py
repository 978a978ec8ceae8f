"""Steps of several examples (transcripts/training.txt has the rest): a crash, and what recovery compares."""

import msgspec
import pytest
from support.world import SETTINGS, World, changed

from apollod.core import events as ev
from apollod.core.fixed_bits import BITS_DEPEND_ON
from apollod.core.settings import OptimizerSettings


def world(**settings: object) -> World:
    return World(changed(SETTINGS, **settings)).up()


def batches(world: World) -> list[tuple[str, ...]]:
    return [ev.all_examples(e) for e in world.of(ev.StepCompleted)]


@pytest.mark.parametrize("after", range(1, 14))
def test_a_trainer_killed_anywhere_ends_in_the_same_weights(after):
    calm = world(accumulate=2)
    calm.lines(*"abcde")
    calm.settle()
    w = world(accumulate=2)
    w.lines(*"abcde")
    for _ in range(after):
        w.answer()
    if w.state.training.running:
        w.memory = "torn"
    w.exit("trainer")
    w.pass_time(5)
    w.settle()
    assert w.memory == calm.memory and batches(w) == batches(calm) == [("a", "b"), ("c", "d"), ("e",)]


def test_every_setting_that_the_optimizer_is_given_is_compared_before_steps_are_run_again():
    assert set(BITS_DEPEND_ON) == {field.name for field in msgspec.structs.fields(OptimizerSettings)}
