"""A stop: the running step, the last checkpoint, the trainer, and serving last; bounded by `[trainer] stop_s`."""

import pytest
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp

FENCED = changed(SETTINGS, publish="fenced", align_every=0)


def in_a_step(settings: ev.Settings = SETTINGS) -> World:
    world = World(settings).up()
    world.lines("a", "b")
    world.settle_until(fx.RunStep)
    return world


def stopped(world: World) -> list[str]:
    return [effect.role for effect in world.asked if isinstance(effect, fx.StopChild)]


def test_serving_ends_last():
    world = in_a_step()
    world.give(inp.StopRequested("SIGTERM"))
    for _ in range(50):
        world.pass_time(1)
    assert not stopped(world) and world.state.children.engine.phase == "ready"
    world.settle_until(fx.StopChild)
    assert set(stopped(world)) == {"trainer"}, "requests are served until it is gone"
    world.settle()
    kinds = [kind for kind in world.kinds() if kind in ("step.completed", "checkpoint.committed", "trainer.exited",
                                                        "engine.exited", "daemon.stopped")]  # fmt: skip
    assert kinds == ["step.completed", "checkpoint.committed", "trainer.exited", "engine.exited", "daemon.stopped"]


@pytest.mark.parametrize("settings", [SETTINGS, FENCED])
def test_a_step_that_takes_too_long_is_abandoned_and_run_in_the_next_life(settings):
    world = in_a_step(settings)
    stuck = world.asked.popleft()
    world.give(inp.StopRequested("SIGTERM"))
    world.pass_time(59)
    world.settle()
    assert not world.exited
    world.memory = "torn"
    world.pass_time(1)
    world.settle()
    assert world.exited and isinstance(stuck, fx.RunStep) and world.state.training.version == 0
    (exited,) = world.of(ev.TrainerExited)
    assert exited.expected and not world.of(ev.StepFailed)
    after = world.successor().up()
    assert [e.example for e in after.of(ev.StepCompleted)] == ["a", "b"]


@pytest.mark.parametrize("hours", [-24, -1, 1, 24])
def test_the_wait_for_a_step_is_bounded_whatever_the_clock_does(hours):
    world = in_a_step()
    world.asked.popleft()
    world.give(inp.StopRequested("SIGTERM"))
    world.now += int(hours * 3600e9)
    world.pass_time(60)
    world.settle()
    assert world.exited


def test_a_last_checkpoint_is_waited_for():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.StopRequested("SIGTERM"))
    world.pass_time(600)
    assert not stopped(world) and world.state.checkpoints.open is not None
    world.settle()
    assert world.exited and world.state.checkpoints.newest is not None


def test_an_engine_that_does_not_serve_yet_is_ended_at_once():
    world = World()
    world.start()
    world.give(inp.StopRequested("SIGTERM"))
    assert sorted(set(stopped(world))) == ["engine", "trainer"]
