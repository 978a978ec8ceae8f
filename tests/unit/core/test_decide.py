"""The core without a process: checkpoints of a queue that never empties."""

from itertools import pairwise

import pytest
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev


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
