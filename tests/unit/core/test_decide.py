"""The core without a process: what follows from what, and that a crash anywhere ends in the same weights."""

from itertools import pairwise

import pytest
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp


@pytest.mark.parametrize("after", range(1, 12))
def test_a_trainer_killed_anywhere_ends_in_the_same_weights(after):
    calm = World().up()
    calm.lines("a", "b", "c")
    calm.settle()
    world = World().up()
    world.lines("a", "b", "c")
    for _ in range(after):
        world.answer()
    if world.state.training.running:
        world.memory = "torn"
    world.exit("trainer")
    world.pass_time(5)
    world.settle()
    assert world.memory == calm.memory and world.optimizer == calm.optimizer
    assert [s.step for s in world.of(ev.StepCompleted)] == [1, 2, 3]


@pytest.mark.parametrize("after", range(0, 12))
def test_an_engine_killed_anywhere_ends_in_the_same_weights(after):
    calm = World().up()
    calm.lines("a", "b", "c")
    calm.settle()
    world = World().up()
    world.lines("a", "b", "c")
    for _ in range(after):
        world.answer()
    world.exit("engine")
    world.settle()  # the trainer is stopped: its memory is gone
    assert world.state.children.trainer.crashes_ns == []
    world.pass_time(5)
    world.engine_up()
    world.settle()
    assert world.memory == calm.memory and world.optimizer == calm.optimizer


@pytest.mark.parametrize("checkpoint_at", [None, 1, 2])
@pytest.mark.parametrize("after", range(0, 14))
def test_a_supervisor_killed_anywhere_ends_in_the_same_weights(after, checkpoint_at):
    calm = World().up()
    calm.lines("a", "b", "c")
    calm.settle()
    world = World().up()
    world.lines("a", "b", "c")
    for _ in range(after):
        if (
            checkpoint_at is not None
            and world.state.training.version == checkpoint_at
            and not world.state.checkpoints.committed
        ):
            world.give(inp.CheckpointRequested("test"))
        world.answer()
    world = world.crash_and_return()
    assert world.memory == calm.memory and world.optimizer == calm.optimizer
    assert [s.step for s in world.of(ev.StepStarted)] == [1, 2, 3], "a number is given once"
    seqs = [r.seq for r in world.journal]
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.parametrize("publish", ["hogwild", "fenced"])
@pytest.mark.parametrize("step_s", [60, 250, 900])
def test_a_queue_that_never_empties_gets_its_checkpoints_behind_the_running_step(step_s, publish):
    world = World(changed(SETTINGS, publish=publish, delay_s=3600.0)).up()
    world.lines(*(f"e{n}" for n in range(9000 // step_s)))
    oldest = []  # how long ago the first unsaved step was completed
    while world.asked:
        if isinstance(world.asked[0], fx.RunStep):
            for _ in range(7):
                world.pass_time(step_s / 7)
        world.answer()
        completed = {r.event.step: r.at_ns for r in world.journal if isinstance(r.event, ev.StepCompleted)}
        if world.state.recovery.since:
            oldest.append((world.now - completed[world.state.recovery.since[0].step]) / 1e9)
    assert max(oldest) <= 600 + 4 * step_s, "the step that ran when it was due, and those beside the writer"
    began = [r.at_ns for r in world.journal if isinstance(r.event, ev.CheckpointStarted)]
    assert len(began) >= 3 and all(after - before >= 600e9 for before, after in pairwise(began))
