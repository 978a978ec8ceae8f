"""A clock that is put back within a life: nothing waits for the hours that come twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.rules.checkpoints import due_ns
from apollod.core.schedules import is_due

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("now", "at", "due"), [(10, 10, True), (10, 11, False), (10, 40, False), (10, 41, True), (10**6, 10, True)]
)
def test_due(now, at, due):
    assert is_due(int(now * 1e9), int(at * 1e9), 30.0) is due


@given(st.lists(st.one_of(st.just("line"), st.just("answer"), st.floats(-1e6, 1e6)), max_size=30), st.booleans())
def test_what_was_learned_is_never_unsaved_for_longer_than_was_set_whatever_the_clock_does(actions, paused):
    world = World(changed(SETTINGS, delay_s=300.0, every_s=500.0)).up()
    for number, action in enumerate(actions):
        match action:
            case "line":
                world.lines(f"e{number}", source=f"{number}")
            case "answer":
                world.answer()
            case seconds:
                world.pass_time(seconds)
        due = due_ns(world.state, world.now)
        assert due is None or 0 <= due - world.now <= 500e9
    if paused:
        world.give(inp.TrainingPaused("t"))
    world.settle()
    for _ in range(2):  # the first of them with what was due before
        world.pass_time(300)
        world.settle()
    assert not world.state.unsaved


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
    world.give(inp.ShutdownRequested("SIGTERM"))
    (again,) = writes(world)
    world.asked.remove(again)
    world.give(failed)
    assert writes(world) == []
    world.settle()
    assert world.exited


def test_a_crashed_child_waits_for_no_longer_than_its_own_back_off():
    """Less than the longest back-off there is."""
    world = World().up()
    world.exit("trainer")
    world.now -= int(200e9)
    world.pass_time(1.0)
    assert world.state.children.trainer.phase == "spawned"


def test_crashes_that_are_dated_in_the_future_are_not_recent():
    world = World().up()
    for _ in range(4):
        world.exit("trainer")
        world.pass_time(20)
        world.settle()
    world.now -= int(24 * HOUR_S * 1e9)
    world.exit("trainer")
    trainer = world.state.children.trainer
    assert not trainer.given_up and len(trainer.crashes_ns) == 1


@pytest.mark.parametrize("jump_s", [-HOUR_S, -1.0, 0.0, 1.0, HOUR_S])
def test_requests_between_two_fences_run_no_longer_than_they_waited(jump_s):
    world = World(changed(SETTINGS, publish="fenced", align_every=0)).up()
    world.lines("a", "b", "c")
    world.settle_until(fx.ResumeEngine)
    world.asked.popleft()
    world.give(inp.TrainingPaused("test"))
    world.give(inp.EngineResumeReport(2.0, active=3))
    world.now += int(jump_s * 1e9)
    world.give(inp.TrainingResumed("test"))
    (fence,) = [effect for effect in world.asked if isinstance(effect, fx.PauseEngine)]
    assert fence.wait_s == {0.0: 2.0, 1.0: 1.0}.get(jump_s, 0.0)
