"""Going back to earlier weights: the right ones, from wherever a crash leaves, and what was learned after them stays
away."""

import pytest
from support.world import SETTINGS, Died, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.rules import rollback as way_back


def learned(*names: str, settings: ev.Settings = SETTINGS, checkpoint_after: str = "") -> tuple[World, list[str]]:
    """A world that learned examples one by one; the weights of version 0, 1, 2, ..."""
    world = World(settings).up()
    weights = [world.memory]
    for name in names:
        world.lines(name, source=name)
        world.settle()
        weights.append(world.memory)
        if name == checkpoint_after:
            world.give(inp.CheckpointRequested("test"))
            world.settle()
    return world, weights


def back(world: World, to: int) -> None:
    world.give(inp.RollbackRequested(to, "test"))
    world.settle()


@pytest.mark.parametrize("to", [0, 2])
def test_a_crash_at_each_instant_of_a_rollback_ends_at_the_same_weights(to):
    calm, weights = learned(*"abcd", checkpoint_after="b")
    first = calm.instants
    back(calm, to)
    assert calm.instants - first > 5
    for instant in range(first + 1, calm.instants + 1):
        world, _ = learned(*"abcd", checkpoint_after="b")
        world.dies_at = instant
        with pytest.raises(Died):
            back(world, to)
        after = world.crash_and_return()
        after.settle()
        if not after.of(ev.RollbackRequested):
            continue
        assert after.memory == weights[to] == after.state.training.fingerprint and after.state.training.version == to
        assert len(after.of(ev.RollbackStarted)) == len(after.of(ev.RollbackCompleted)) == 1


def test_steps_of_other_settings_are_not_run_again():
    world, weights = learned(*"abc", checkpoint_after="b")
    other = world.successor()
    other.settings = changed(SETTINGS, keep=2, rank=8)
    other.give(inp.ShutdownRequested("test"))  # a life that only changes the configuration
    world.give(inp.RollbackRequested(1, "test"))
    plan = world.asked.popleft()
    begun, done = ({e.step: e for e in world.of(kind)} for kind in (ev.StepStarted, ev.StepCompleted))
    planned = way_back.way_back(
        begun, done, lambda _: other.settings, world.bound_of, plan.to, plan.version, plan.checkpoints
    )
    world.give(planned)
    assert "rank = 8" in world.of(ev.RollbackRefused)[0].reason
    back(world, 2)
    assert world.memory == weights[2], "a checkpoint needs no step again"


def bound_with(threads: str) -> ev.TrainerBound:
    return ev.TrainerBound(pid=1, fingerprint="", parameters=0, elements=0, versions={"threads": threads})


def test_steps_of_another_number_of_threads_are_not_run_again():
    world, weights = learned(*"abc", checkpoint_after="b")
    world.state.children.bound.versions["threads"] = "2"

    def planned(*threads: str) -> inp.RollbackPlanned:
        world.give(inp.RollbackRequested(1, "test"))
        plan = world.asked.popleft()
        begun, done = ({e.step: e for e in world.of(kind)} for kind in (ev.StepStarted, ev.StepCompleted))
        bound = {n + 1: bound_with(count) for n, count in enumerate(threads)}
        to, version, checkpoints = plan.to, plan.version, plan.checkpoints
        return way_back.way_back(begun, done, lambda _: world.settings, bound.__getitem__, to, version, checkpoints)

    world.give(planned("4", "2", "2"))
    reason = world.of(ev.RollbackRefused)[0].reason
    assert "step" in reason and "threads = 4; set [trainer] threads back" in reason
    plan = planned("2", "4", "4")
    assert plan.ran_on == {"threads": "2"}
    world.give(plan)
    world.settle()
    assert world.memory == weights[1] and world.of(ev.RollbackStarted)[0].ran_on == {"threads": "2"}


def test_steps_of_several_numbers_of_threads_have_no_way_back_through_all_of_them():
    world, _ = learned(*"abc")
    world.give(inp.RollbackRequested(2, "test"))
    plan = world.asked.popleft()
    begun, done = ({e.step: e for e in world.of(kind)} for kind in (ev.StepStarted, ev.StepCompleted))
    bound = {1: bound_with("4"), 2: bound_with("2")}
    planned = way_back.way_back(
        begun, done, lambda _: world.settings, bound.__getitem__, plan.to, plan.version, plan.checkpoints
    )
    assert "were made with several threads; name the step of a checkpoint" in planned.error


def test_a_way_of_too_many_steps_is_refused(monkeypatch: pytest.MonkeyPatch):
    world, _ = learned(*"abcd")
    begun, done = ({e.step: e for e in world.of(kind)} for kind in (ev.StepStarted, ev.StepCompleted))

    def error(most: int, to: int, *checkpoints: int) -> str:
        monkeypatch.setattr(way_back, "UNDONE_MAX", most)
        paths = dict.fromkeys(checkpoints, "/c")
        return way_back.way_back(begun, done, lambda _: world.settings, world.bound_of, to, 4, paths).error

    assert error(3, 1, 1) == "" and "more than 2 steps; start anew" in error(2, 1, 1), "three are undone"
    assert error(3, 3) == "" and "nearest checkpoint is more than 2 steps before" in error(2, 3), "three are replayed"
    assert error(2, 3, 1) == ""


@pytest.mark.parametrize("limit", [{"keep": 1}, {"keep_bytes": 1}], ids=str)
def test_house_keeping_leaves_the_way_back_while_the_next_checkpoint_cannot_be_written(limit):
    """The model directory holds step 6, the truth is step 2: the delta of step 4 is a part of the only way."""
    world, weights = World(changed(SETTINGS, keep=20, keep_base="off")).up(), ["base"]
    for name in "abcdef":
        world.lines(name, source=name)
        world.settle()
        weights.append(world.memory)
        if name in "bdf":
            world.give(inp.CheckpointRequested("test"))
            world.settle()
    world.give(inp.RollbackRequested(2, "test"))
    full_disk(world)
    world.settings = changed(SETTINGS, **{"keep": 20, "keep_base": "off", **limit})
    for _ in range(2):
        world.pass_time(3 * 86_400)
        full_disk(world)
        world = world.successor()
        world.start()
        world.engine_up()
        full_disk(world)
        assert world.memory == weights[2] and [c.step for c in world.state.checkpoints.committed] == [2, 4, 6]
    world.pass_time(70)
    world.settle()
    assert [c.path.rpartition("/")[2] for c in world.state.checkpoints.committed] == ["step-00000002-2"]
    assert world.model_dir[1] == weights[2] == world.crash_and_return().memory


def full_disk(world: World) -> None:
    """Everything is answered, but no checkpoint can be written."""
    while world.asked:
        if isinstance(asked := world.asked[0], fx.WriteCheckpoint):
            world.asked.popleft()
            world.give(inp.CheckpointWritten(asked.step, asked.path, "", 0, 0.0, error="no space left on device"))
        else:
            world.answer()


def test_the_end_of_an_old_checkpoints_hook_is_not_that_of_a_new_one_of_the_same_step():
    """A copy of gigabytes takes minutes; meanwhile the model directory went on and came back."""
    world, _ = learned("a", settings=changed(SETTINGS, checkpoint_hook=True))
    world.hook_is_busy = True
    world.give(inp.CheckpointRequested("test"))
    world.settle()
    first = world.state.checkpoints.newest
    for name in "bc":
        world.lines(name, source=name)
        world.settle()
    world.give(inp.CheckpointRequested("test"))
    world.settle()
    back(world, 1)
    assert world.state.checkpoints.newest.step == first.step == 1 and world.state.checkpoints.newest.path != first.path
    world.hook_is_busy = False
    world.give(inp.HookCompleted(first.step, 600.0, first.path))
    world.settle()
    assert world.hooked == [1] and world.state.checkpoints.hook_due is None
    assert [e.path for e in world.of(ev.HookCompleted)] == [first.path, world.state.checkpoints.newest.path]


def test_a_checkpoint_that_is_committed_on_the_way_back_does_not_change_the_way():
    """Its writer ends before the trainer restores: the steps after the older checkpoint are still to be run again."""
    world, weights = learned("a", "b", "c")
    world.give(inp.CheckpointRequested("test"))
    world.lines("d")
    writing = world.asked.popleft()
    world.settle_until(fx.RunStep)
    world.answer()
    world.give(inp.RollbackRequested(3, "test"))
    world.settle_until(fx.Restore)
    restore = world.asked.popleft()
    world.asked.extend([writing])
    assert restore.path == "" and len(world.state.recovery.since) == 3
    world.view.weights = weights[3]  # as it was copied out
    world.answer()
    world.settle()
    assert world.of(ev.CheckpointCommitted)[-1].step == 3 and world.state.rollback.under_way
    world.asked.append(restore)
    world.settle()
    assert (
        world.memory == weights[3] == world.state.training.fingerprint
        and world.of(ev.RollbackCompleted)[0].replayed == 3
    )
    recovery = world.state.recovery
    assert recovery.origin == world.state.checkpoints.newest and not recovery.since, (
        "from now on a recovery starts from it"
    )
