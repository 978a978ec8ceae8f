"""Going back to earlier weights: the right ones, from wherever a crash leaves, and what was learned after them stays
away."""

import pytest
from support.world import SETTINGS, Died, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
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
    world.give(inp.RollbackWanted(to, "test"))
    world.settle()


@pytest.mark.parametrize("keeps_steps", [False, True])
@pytest.mark.parametrize("checkpoint_after", ["", "a", "b", "d"])
@pytest.mark.parametrize("to", [0, 1, 2, 3])
def test_the_weights_of_a_step_come_back(to, checkpoint_after, keeps_steps):
    world = World().up()
    world.keeps_steps = keeps_steps
    weights, optimizers = [world.memory], [world.optimizer]
    for name in "abcd":
        world.lines(name, source=name)
        world.settle()
        weights.append(world.memory)
        optimizers.append(world.optimizer)
        if name == checkpoint_after:
            world.give(inp.CheckpointRequested("test"))
            world.settle()
    pid = world.state.children.engine.pid
    back(world, to)
    assert (world.memory, world.optimizer) == (weights[to], optimizers[to]) and world.state.training.version == to
    assert world.state.children.engine.pid == pid and world.state.children.trainer.phase == "ready"
    (done,) = world.of(ev.RollbackCompleted)
    assert (done.to, done.from_step, done.fingerprint, done.how) == (
        to,
        4,
        weights[to],
        "memory" if keeps_steps else "checkpoint",
    )
    (started,) = world.of(ev.RollbackStarted)
    assert started.undone == tuple(range(4, to, -1)) and list(started.examples) == list("dcba")[: 4 - to]
    if checkpoint_after == "d":  # the model directory does not keep what was taken back
        assert world.model_dir[1] == weights[to] and world.state.checkpoints.newest.step == to
    world.lines("e", source="e")
    world.settle()
    (last,) = [e for e in world.of(ev.StepCompleted) if e.example == "e"]
    assert (last.step, last.parent) == (5, to)


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


def test_dead_children_in_the_middle_of_a_rollback():
    for role in ("trainer", "engine"):
        world, weights = learned(*"abc")
        world.give(inp.RollbackWanted(1, "test"))
        world.settle_until(fx.Restore)
        world.memory = "torn"
        world.exit(role)
        world.settle()
        world.pass_time(70)
        if world.state.children.engine.phase == "spawned":
            world.engine_up()
        world.settle()
        assert world.memory == weights[1] and world.of(ev.RollbackCompleted)


def test_what_was_taken_back_is_marked_and_comes_back_only_when_asked_for():
    world, _ = learned(*"abc")
    back(world, 1)
    assert list(world.state.intake.undone) == ["c", "b"] and world.state.training.counts.trained == 1
    world.lines("b", "c", source="again")
    world.settle()
    assert world.state.training.version == 1, "known examples are duplicates"
    world.give(inp.RelearnRequested((("b", "direct"), ("a", "bulk"), ("x", "bulk")), "test"))
    world.settle()
    assert [(e.example, e.tier) for e in world.of(ev.ExampleRequeued)] == [("b", "direct")]
    last = world.of(ev.StepCompleted)[-1]
    assert (last.example, last.step, last.parent) == ("b", 4, 1) and list(world.state.intake.undone) == ["c"]
    assert world.state.training.counts.trained == 2
    world.give(inp.RelearnRequested((("b", "direct"),), "test"))
    assert not world.state.intake.pending


def test_prefixes_of_what_was_taken_back_go_whatever_the_policy():
    for cache, forgotten in (("reset", "reset"), ("salt", "salt"), ("keep", "reset")):
        world, _ = learned(*"ab", settings=changed(SETTINGS, cache=cache))
        back(world, 1)
        assert world.forgotten[-1] == (1, forgotten)


def test_no_step_begins_and_no_checkpoint_goes_between_the_wish_and_its_end():
    world, _ = learned(*"abc", checkpoint_after="a")
    world.lines("d", "e", source="more")
    world.answer()  # tokenised: step 4 runs
    assert world.state.training.running.step == 4
    world.give(inp.RollbackWanted(2, "test"))
    assert not world.of(ev.RollbackStarted)
    world.settle()
    assert [e.step for e in world.of(ev.StepCompleted)][:4] == [1, 2, 3, 4]
    (started,) = world.of(ev.RollbackStarted)
    assert started.undone == (4, 3)
    kinds = world.kinds()
    assert "step.started" not in kinds[kinds.index("rollback.requested") : kinds.index("rollback.completed")]
    assert [e.parent for e in world.of(ev.StepCompleted)][-1] == 2, "what waits is learned on top of it"


def test_a_step_that_kills_its_trainer_gives_way_to_a_rollback():
    world, _ = learned(*"ab")
    world.lines("poison", source="p")
    world.answer()
    world.give(inp.RollbackWanted(1, "test"))
    world.exit("trainer")
    world.settle()
    world.pass_time(70)
    world.settle()
    assert world.of(ev.RollbackCompleted) and world.of(ev.StepFailed)[0].apart
    assert world.of(ev.StepCompleted)[-1].parent == 1, "its example is still to be learned"


def test_without_an_engine_the_way_back_is_found_before_a_trainer_starts():
    world, weights = learned(*"ab")
    world.lines("c", source="c")
    world.answer()
    world.give(inp.RollbackWanted(1, "test"))
    world.exit("engine")
    world.settle()
    kinds = world.kinds()
    assert "trainer.spawned" not in kinds[kinds.index("rollback.requested") : kinds.index("rollback.started")]
    world.pass_time(70)
    world.engine_up()
    world.settle_until(fx.ProbeTrainer)
    assert world.memory == weights[1]


def test_a_halt_ends_with_a_rollback():
    world, weights = learned(*"abc")
    world.give(inp.Refused("step", "weights are damaged", "go back"))
    assert world.state.daemon.halted
    back(world, 2)
    assert (
        world.memory == weights[2] and not world.state.daemon.halted and world.state.children.trainer.phase == "ready"
    )
    assert not [e for e in world.of(ev.TrainerExited) if not e.expected]


@pytest.mark.parametrize(
    ("to", "reason"), [(3, "is what is served"), (4, "no step 4"), (-1, "no step -1"), (2, "taken back")]
)
def test_what_there_is_no_way_to_is_refused_and_training_goes_on(to, reason):
    world, _ = learned(*"abc")
    if to == 2:
        back(world, 1)
        world.lines("d", source="d")
        world.settle()
    back(world, to)
    assert reason in world.of(ev.RollbackRefused)[-1].reason and not blocked(Activity.STEP, world.state)
    assert len(world.of(ev.RollbackStarted)) == (to == 2)


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("rank", 8, "set [trainer] rank back, or name the step of a checkpoint"),
        ("limiter_rule", "growth", "= 'growth'; name the step of a checkpoint"),
    ],
)
def test_steps_of_other_settings_are_not_run_again(key, value, remedy):
    world, weights = learned(*"abc", checkpoint_after="b")
    other = world.successor()
    other.settings = changed(SETTINGS, keep=2, **{key: value})
    other.give(inp.StopRequested("test"))  # a life that only changes the configuration
    world.give(inp.RollbackWanted(1, "test"))
    plan = world.asked.popleft()
    begun, done = ({e.step: e for e in world.of(kind)} for kind in (ev.StepStarted, ev.StepCompleted))
    planned = way_back.way_back(
        begun, done, lambda _: other.settings, world.bound_of, plan.to, plan.version, plan.checkpoints
    )
    world.give(planned)
    refused = world.of(ev.RollbackRefused)[0].reason
    assert f"{key} = {value!r}" in refused and remedy in refused
    back(world, 2)
    assert world.memory == weights[2], "a checkpoint needs no step again"


def bound_with(threads: str) -> ev.TrainerBound:
    return ev.TrainerBound(pid=1, fingerprint="", parameters=0, elements=0, versions={"threads": threads})


def test_steps_of_another_number_of_threads_are_not_run_again():
    world, weights = learned(*"abc", checkpoint_after="b")
    world.state.children.bound.versions["threads"] = "2"

    def planned(*threads: str) -> inp.RollbackPlanned:
        world.give(inp.RollbackWanted(1, "test"))
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
    world.give(inp.RollbackWanted(2, "test"))
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


def test_twice_back_and_forth():
    world, weights = learned(*"abcd", checkpoint_after="c")
    back(world, 2)
    world.lines("e", source="e")
    world.settle()
    after_e = world.memory
    world.lines("f", source="f")
    world.settle()
    back(world, 5)
    assert world.memory == after_e
    back(world, 1)
    assert world.memory == weights[1] and world.state.training.version == 1
    world = world.crash_and_return()
    assert world.memory == weights[1]
    assert [c.path for c in world.state.checkpoints.committed][-1] == world.model_dir[0]


def test_weights_of_one_step_can_be_written_twice():
    world, weights = learned(*"ab", checkpoint_after="a")
    world.give(inp.CheckpointRequested("test"))
    world.settle()
    back(world, 1)
    assert [c.path.rpartition("/")[2] for c in world.state.checkpoints.committed] == [
        "step-00000002",
        "step-00000001-2",
    ]
    assert world.model_dir[1] == weights[1]


def test_a_checkpoint_that_is_committed_after_its_step_was_taken_back():
    world, weights = learned(*"abc")
    world.give(inp.CheckpointRequested("test"))
    world.answer()  # handed to the writer
    world.give(inp.RollbackWanted(1, "test"))
    world.settle()
    steps = [e.step for e in world.of(ev.CheckpointCommitted)]
    assert steps == [3, 1] and world.state.checkpoints.newest.step == 1 and world.state.recovery.origin.step == 1
    assert world.memory == weights[1] == world.model_dir[1]
    assert world.crash_and_return().memory == weights[1]


def test_the_checkpoint_that_a_recovery_starts_from_stays_while_the_next_one_cannot_be_written():
    world, weights = learned(*"ab", settings=changed(SETTINGS, keep=1000), checkpoint_after="a")
    world.give(inp.CheckpointRequested("test"))
    world.settle()
    world.give(inp.RollbackWanted(1, "test"))
    world.settle_until(fx.WriteCheckpoint)
    asked = world.asked.popleft()
    world.give(inp.CheckpointWritten(asked.step, asked.path, "", 0, 0.0, error="no space left on device"))
    again = world.successor()
    again.settings = changed(SETTINGS, keep=1)
    again.start()
    again.engine_up()
    again.settle_until(fx.Restore)
    assert sorted(again.disk) == ["/s/checkpoints/step-00000001", "/s/checkpoints/step-00000002"]
    again.settle()
    assert again.memory == weights[1]


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
    world.give(inp.RollbackWanted(2, "test"))
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


@pytest.mark.parametrize("to", [0, 1])
def test_without_a_way_to_the_untrained_weights_a_rollback_that_needs_them_is_refused(to):
    world = World(changed(SETTINGS, keep=1, keep_base="off")).up()
    for name in "abc":
        world.lines(name, source=name)
        world.settle()
        if name != "a":
            world.give(inp.CheckpointRequested("test"))
            world.settle()
    memory = world.memory
    assert [c.step for c in world.state.checkpoints.committed] == [3]
    back(world, to)
    (refused,) = world.of(ev.RollbackRefused)
    assert "untrained weights were not kept" in refused.reason and not world.of(ev.RollbackStarted)
    assert world.memory == memory and not blocked(Activity.STEP, world.state)


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
    world.give(inp.HookDone(first.step, first.path, 600.0))
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
    world.give(inp.RollbackWanted(3, "test"))
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


def test_weights_that_are_not_the_checkpoints_are_not_gone_on_with():
    world, _ = learned("a", "b", checkpoint_after="a")
    world.give(inp.RollbackWanted(1, "test"))
    world.settle_until(fx.Restore)
    world.asked.popleft()
    world.give(inp.Restored("others", 10))
    world.lines("c")
    world.settle()
    assert "weights others were restored" in world.state.daemon.halted and not world.of(ev.RollbackCompleted)
    assert len(world.of(ev.StepStarted)) == 2
