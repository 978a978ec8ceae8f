"""A clock that is put back within a life: nothing waits for the hours that come twice."""

import pytest
from support.world import World

from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.schedules import is_due

HOUR_S = 3600.0


@pytest.mark.parametrize(("now", "at", "due"), [(10, 10, True), (10, 11, False), (10, 40, False), (10, 41, True), (10**6, 10, True)])
def test_due(now, at, due):
    assert is_due(int(now * 1e9), int(at * 1e9), 30.0) is due


def test_a_crashed_child_is_started_again():
    world = World().up()
    world.exit("trainer")
    assert world.state.trainer.phase == "absent"
    world.pass_time(-24 * HOUR_S)
    assert world.state.trainer.phase == "spawned"


def test_a_checkpoint_falls_due_and_is_tried_again_after_a_failure():
    world = World().up()
    world.lines("a")
    world.settle()
    world.pass_time(-24 * HOUR_S)
    effect = world.asked.popleft()
    assert isinstance(effect, fx.WriteCheckpoint)
    world.give(inp.CheckpointWritten(effect.step, effect.path, "", 0, 0.0, error="no space left on device"))
    assert not world.asked
    world.pass_time(-24 * HOUR_S)
    assert [type(e) for e in world.asked] == [fx.WriteCheckpoint]


def writes(world: World) -> list[fx.WriteCheckpoint]:
    return [effect for effect in world.asked if isinstance(effect, fx.WriteCheckpoint)]


def test_a_shutdown_right_after_a_failed_checkpoint_tries_once_more_and_only_once():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    (first,) = writes(world)
    world.asked.remove(first)
    failed = inp.CheckpointWritten(first.step, first.path, "", 0, 0.0, error="no space left on device")
    world.give(failed)
    world.give(inp.StopRequested("SIGTERM"))
    (again,) = writes(world)
    world.asked.remove(again)
    world.give(failed)
    assert writes(world) == []
    world.settle()
    assert world.exited
