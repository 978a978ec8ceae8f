"""The core without a process: what follows from what, and that a crash anywhere ends in the same weights."""

from itertools import pairwise

import pytest
from support.world import SETTINGS, Died, Kept, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.schedules import EXITS_MAX
from apollod.supervisor.status_view import status_view
from apollod.wire.status import Journal


def test_a_line_becomes_a_step_and_the_queue_empties():
    world = World().up()
    world.lines("a", "b")
    world.settle()
    assert [(s.step, s.parent, s.example) for s in world.of(ev.StepCompleted)] == [(1, 0, "a"), (2, 1, "b")]
    assert world.state.queued == 0 and world.state.training.counts.trained == 2
    assert world.kinds()[-1] == "window.closed"
    assert world.refreshed[-1] == 2


def test_the_intent_is_recorded_before_the_effect():
    world = World().up()
    world.lines("a")
    world.answer()  # encode
    assert world.kinds()[-1] == "step.started"
    assert world.asked == type(world.asked)([fx.RunStep(1, ("a",), (world.of(ev.ExampleEncoded)[0].digest,), 1.0)])


def test_the_same_example_is_learned_once():
    world = World().up()
    world.lines("a", "a")
    world.settle()
    world.lines("a", source="copy")
    world.settle()
    assert len(world.of(ev.StepCompleted)) == 1 and world.state.intake.counts.duplicates == 2


def test_examples_are_learned_in_the_order_of_acceptance_even_when_many_wait():
    world = World()
    world.start()
    names = [f"e{i:03d}" for i in range(200)]
    world.lines(*names)
    world.engine_up()
    world.settle()
    assert [s.example for s in world.of(ev.StepCompleted)] == names


def test_an_example_that_cannot_be_tokenised_is_rejected_and_costs_no_step_number():
    world = World().up()
    world.lines("a", "long1", "b")
    world.settle()
    assert [s.step for s in world.of(ev.StepCompleted)] == [1, 2]
    assert [e.example for e in world.of(ev.ExampleRejected)] == ["long1"]
    assert world.state.intake.counts.rejected == 1


def test_pause_finishes_the_running_step_and_starts_no_other():
    world = World().up()
    world.lines("a", "b")
    world.answer()
    world.give(inp.PauseRequested("t"))
    world.settle()
    assert world.state.training.version == 1 and world.state.queued == 1
    world.give(inp.ResumeRequested("t"))
    world.settle()
    assert world.state.training.version == 2


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


def test_replay_from_the_newest_checkpoint_is_checked_step_by_step():
    world = World().up()
    world.lines("a", "b")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    world.settle()
    world.lines("c", "d", source="later")
    world.settle()
    world.exit("trainer")
    world.pass_time(5)
    world.settle()
    assert world.of(ev.ReplayVerified)[-1] == ev.ReplayVerified(first=3, last=4, fingerprint=world.memory)
    assert world.of(ev.TrainerAttached)[-1].restored == "/s/checkpoints/step-00000002"


def test_a_diverging_replay_halts_training_and_says_which_step():
    world = World().up()
    world.lines("a", "b")
    world.settle()
    world.exit("trainer")
    world.pass_time(5)
    world.answer()
    world.answer()
    step = world.asked.popleft()
    world.give(inp.StepDone(step.step, True, 1.0, 1.0, 1.0, 10, 4, "other", 0.1, 0, 0, True))
    world.settle()
    assert world.of(ev.ReplayDiverged)[0].step == 1 and "replay of step 1" in world.state.daemon.halted
    world.lines("c", source="later")
    world.settle()
    assert world.state.training.version == 2, "nothing is learned on weights that are not the journal's"
    world.give(inp.ResumeRequested("t"))
    world.settle()
    world.settle()
    assert world.state.training.version == 3 and not world.state.daemon.halted


def test_a_step_that_kills_every_trainer_is_given_up_and_its_number_is_not_used_again():
    world = World().up()
    world.lines("poison", "b")
    world.answer()
    for _ in range(3):
        assert world.state.training.running and world.state.training.running.examples == ("poison",)
        world.exit("trainer")
        world.pass_time(30)
        while world.asked and not (isinstance(world.asked[0], fx.RunStep) and world.asked[0].examples == ("poison",)):
            world.answer()
    world.settle()
    assert world.of(ev.StepFailed) == [ev.StepFailed(step=1, example="poison", reason="exit code -9", attempts=3)]
    assert [(s.step, s.parent, s.example) for s in world.of(ev.StepCompleted)] == [(2, 0, "b")]


def test_children_that_keep_dying_are_given_up_and_resume_tries_again():
    world = World()
    world.start()
    for _ in range(EXITS_MAX):
        world.exit("engine", 1)
        world.pass_time(61)
    assert world.state.children.engine.given_up and world.state.children.engine.phase == "absent"
    world.pass_time(10_000)
    assert world.state.children.engine.phase == "absent"
    world.give(inp.ResumeRequested("t"))
    assert world.state.children.engine.phase == "spawned"


def test_a_refused_start_is_tried_again_without_being_counted():
    world = World()
    world.start()
    for attempt in range(EXITS_MAX + 2):
        pid = world.state.children.engine.pid
        world.give(inp.ChildExited("engine", pid, None, "the model directory /m does not exist", refused=True))
        assert world.state.children.engine.phase == "absent" and "does not exist" in world.state.children.engine.error
        world.pass_time(14)
        assert world.state.children.engine.phase == "absent"
        world.pass_time(1 + 300 * (attempt > 0))
        assert world.state.children.engine.phase == "spawned"
    assert not world.state.children.engine.given_up


def test_a_checkpoint_falls_due_after_idle_time_and_old_ones_make_room():
    world = World().up()
    for name in "abcd":
        world.lines(name, source=name)
        world.settle()
        world.pass_time(599)
        before = len(world.of(ev.CheckpointCommitted))
        world.pass_time(2)
        world.settle()
        assert len(world.of(ev.CheckpointCommitted)) == before + 1
    world.pass_time(10_000)
    world.settle()
    assert len(world.of(ev.CheckpointCommitted)) == 4, "nothing new, nothing written"
    assert sorted(world.disk) == ["/s/checkpoints/step-00000003", "/s/checkpoints/step-00000004"]


def test_a_paused_daemon_writes_the_checkpoint_that_is_due():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.PauseRequested("t"))
    world.pass_time(601)
    world.settle()
    assert [e.step for e in world.of(ev.CheckpointCommitted)] == [1] and world.state.daemon.paused


def test_a_queue_that_waits_keeps_no_checkpoint_from_being_due():
    world = World(changed(SETTINGS, delay_s=100.0, every_s=0.0)).up()
    world.lines("a", "b", "c")
    world.answer()
    world.give(inp.PauseRequested("t"))
    world.settle()
    world.pass_time(99)
    assert not world.of(ev.CheckpointStarted)
    world.pass_time(1)
    world.settle()
    assert [e.step for e in world.of(ev.CheckpointCommitted)] == [1] and world.state.queued == 2


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


def test_every_s_counts_from_the_first_unsaved_step_and_not_from_a_checkpoint_of_yesterday():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    world.pass_time(86_400)
    world.lines("b", "c")
    world.answer()
    world.answer()
    assert world.state.training.running and [e.step for e in world.of(ev.CheckpointStarted)] == [1]
    world.pass_time(600)
    assert [e.step for e in world.of(ev.CheckpointStarted)] == [1, 3], "it holds the running step"


def test_without_delay_a_checkpoint_follows_the_last_step_and_not_each():
    world = World(changed(SETTINGS, delay_s=0.0)).up()
    world.lines("a", "b", "c")
    world.settle()
    assert [e.step for e in world.of(ev.CheckpointCommitted)] == [3]


def test_status_says_when_the_next_checkpoint_is_due():
    def due() -> float | None:
        return status_view(world.state, world.now, Journal(seq=0, bytes=0, head_hash="")).checkpoint.due_in_s

    world = World(changed(SETTINGS, delay_s=100.0, every_s=300.0, replay_max=10)).up()
    assert due() is None
    world.lines("a", "b")
    for _ in range(2):
        world.answer()
    world.pass_time(40)
    assert world.state.training.running.step == 2 and due() == 260.0, "while steps go on"
    world.settle()
    world.pass_time(30)
    assert due() == 70.0, "after the last step"
    world.now -= 3600 * 10**9
    assert due() == 0.0, "the clock was put back"
    world.give(inp.Tick())
    asked = world.asked.popleft()
    world.give(inp.CheckpointWritten(asked.step, asked.path, "", 0, 0.0, error="no space left on device"))
    assert due() == 60.0, "it is tried again"
    world.pass_time(60)
    world.settle()
    assert due() is None
    world.give(inp.RollbackWanted(1, "t"))
    world.settle_until(fx.WriteCheckpoint)
    assert due() == 0.0, "what was taken back is in the model directory"


def test_a_failed_checkpoint_is_not_tried_in_a_loop():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    effect = world.asked.popleft()
    world.give(inp.CheckpointWritten(effect.step, effect.path, "", 0, 0.0, error="no space left on device"))
    world.pass_time(601)
    assert [type(e) for e in world.asked] == [fx.WriteCheckpoint]
    effect = world.asked.popleft()
    world.give(inp.CheckpointWritten(effect.step, effect.path, "", 0, 0.0, error="no space left on device"))
    world.pass_time(30)
    assert not world.asked
    world.pass_time(31)
    assert [type(e) for e in world.asked] == [fx.WriteCheckpoint]


def test_recovery_is_bounded_by_replay_max():
    world = World(changed(SETTINGS, replay_max=3)).up()
    world.lines(*[f"e{i}" for i in range(10)])
    world.settle()
    assert [c.step for c in world.of(ev.CheckpointCommitted)] == [3, 6, 9]


def test_shutdown_finishes_the_step_writes_a_checkpoint_and_leaves():
    world = World().up()
    world.lines("a", "b")
    world.answer()
    world.give(inp.StopRequested("SIGTERM"))
    world.settle()
    assert world.exited and world.state.daemon.stopped
    assert world.state.training.version == 1 and world.state.checkpoints.newest.step == 1
    assert world.kinds()[-1] == "daemon.stopped"
    again = world.crash_and_return()
    again.settle()
    assert again.state.training.version == 2 and not again.of(ev.ReplayVerified)


def test_shutdown_while_starting():
    world = World()
    world.start()
    world.give(inp.StopRequested("SIGINT"))
    world.settle()
    assert world.exited


def test_another_model_on_the_same_journal_is_refused():
    world = World().up()
    world.lines("a")
    world.settle()
    world.settings = changed(SETTINGS, model_path="/other")
    other = world.crash_and_return()
    assert "/m" in other.state.daemon.halted and "/other" in other.state.daemon.halted


def test_a_model_that_no_trainer_was_bound_to_does_not_bind_the_journal():
    """A mistyped path, then a busy port: nothing was learned, so the path may be put right."""
    world = World(changed(SETTINGS, model_path="/nope"))
    world.start()
    assert "/nope is no model directory" in world.state.children.engine.error and not world.state.daemon.halted
    right = world.successor()
    right.settings = SETTINGS
    right.up()
    right.lines("a")
    right.settle()
    assert not right.state.daemon.halted and right.state.training.version == 1
    wrong = right.successor()
    wrong.settings = changed(SETTINGS, model_path="/nope")
    wrong.start()
    assert "belongs to the model /m" in wrong.state.daemon.halted and wrong.state.daemon.model_path == "/m"


def test_a_torn_checkpoint_intent_is_settled_on_start():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    assert world.state.checkpoints.open is not None
    again = world.crash_and_return()
    assert again.state.checkpoints.open is None and again.of(ev.CheckpointFailed)


def test_a_checkpoint_that_reached_its_name_before_the_crash_is_committed_on_start():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    for _ in range(2):
        world.answer()  # handed to the writer; its directory is there
    entered = world.successor()
    entered.up()
    assert entered.state.checkpoints.newest is None and entered.of(ev.CheckpointFailed) and not entered.disk, (
        "the model directory decides"
    )


def test_a_checkpoint_that_was_committed_before_the_crash_counts_on_start():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    for _ in range(2):
        world.answer()
    world.dies_at = world.instants + 1  # right after the model directory was brought up to date
    with pytest.raises(Died):
        world.answer()
    again = world.crash_and_return()
    assert again.state.checkpoints.newest.step == 1 and again.model_dir == (
        "/s/checkpoints/step-00000001",
        again.memory,
    )
    assert not again.of(ev.ReplayVerified) and again.state.children.trainer.phase == "ready"


def test_nothing_starts_before_an_open_checkpoint_is_settled():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    again = world.successor()
    again.start()
    assert [type(e) for e in again.asked] == [fx.ObserveCheckpoint]
    again.pass_time(30)
    assert [type(e) for e in again.asked] == [fx.ObserveCheckpoint] and not again.of(ev.EngineSpawned)[1:]


def test_a_trainer_that_dies_while_it_writes_a_checkpoint():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    world.exit("trainer")
    world.settle()
    assert world.state.checkpoints.open is None and len(world.of(ev.CheckpointFailed)) == 1


def test_steps_go_on_while_a_checkpoint_is_written():
    world = World().up()
    world.lines("a")
    world.settle()
    saved = world.memory
    world.give(inp.CheckpointRequested("test"))
    world.answer()
    world.lines("b")
    for _ in range(2):  # the writer is slow: tokens and step of b come before it
        world.asked.rotate(-1)
        world.answer()
    world.settle()
    kinds = world.kinds()
    assert kinds.index("checkpoint.committed") > kinds.index("step.completed", kinds.index("checkpoint.started"))
    assert world.state.checkpoints.newest.fingerprint == saved and [d.step for d in world.state.recovery.since] == [2]


def test_a_checkpoint_of_other_weights_than_the_journals_is_none():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    world.answer()
    world.asked[0] = world.asked[0]._replace(weights="others")
    world.lines("b")
    world.settle()
    assert "others" in world.of(ev.CheckpointFailed)[0].reason and world.state.checkpoints.newest is None


def test_whether_it_was_committed_is_looked_at_where_the_writer_cannot_say():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    path = world.asked.popleft().path
    world.disk[path] = Kept(world.memory, world.optimizer, "base")
    world.model_dir = (path, world.memory)
    world.give(inp.CheckpointWritten(1, path, "", 0, 0.0, error="input/output error", doubtful=True))
    world.settle()
    assert world.state.checkpoints.newest.step == 1 and not world.of(ev.CheckpointFailed)


def test_a_limit_by_bytes_keeps_the_newest():
    """Checkpoints of 10 bytes each."""
    for limit, kept in ((25, [2, 3]), (5, [3])):
        world = World(changed(SETTINGS, keep=20, keep_bytes=limit)).up()
        for name in "abc":
            world.lines(name, source=name)
            world.settle()
            world.pass_time(86_400)
            world.settle()
        assert [c.step for c in world.state.checkpoints.committed] == kept
        assert sorted(world.disk) == [f"/s/checkpoints/step-{step:08}" for step in kept]


def test_a_limit_of_its_own_is_half_of_the_disk_that_was_free_at_the_start():
    """Checkpoints of 10 bytes each: 30 for the first life, and in the second half of what is free and what they
    take."""
    free = iter((60, 0))
    world = World(changed(SETTINGS, keep=20, keep_bytes="auto"), free=next(free)).up()
    for name in "abcd":
        world.lines(name, source=name)
        world.settle()
        world.pass_time(86_400)
        world.settle()
    assert [c.step for c in world.state.checkpoints.committed] == [2, 3, 4]
    assert world.of(ev.DaemonStarted)[0].history_bytes == 30
    fuller = world.successor()
    fuller.free = next(free)
    fuller.up()
    assert fuller.of(ev.DaemonStarted)[-1].history_bytes == 15 and fuller.of(ev.ConfigChanged) == []
    assert [c.step for c in fuller.state.checkpoints.committed] == [4]


def test_a_journal_from_before_there_was_a_limit_of_its_own_has_none():
    world = World(changed(SETTINGS, keep=20)).up()
    assert world.state.daemon.settings.checkpoint.keep_bytes == "auto" and world.state.daemon.history_bytes == 0
    for name in "abcd":
        world.lines(name, source=name)
        world.settle()
        world.pass_time(86_400)
        world.settle()
    assert len(world.state.checkpoints.committed) == 4


@pytest.mark.parametrize(("key", "then", "now"), [("threads", 4, 2), ("kernels", "triton", "eager")])
def test_steps_of_another_number_of_threads_or_other_kernels_are_not_run_again(key, then, now):
    """As bound, whatever the configuration says: a machine with fewer cores has other threads by itself."""
    world = World()
    world.versions = {"threads": "4", "kernels": "triton", "torch": "2.13"}
    world.up()
    world.lines("a", "b")
    world.settle()
    assert world.state.training.version == 2 and world.state.unsaved
    back = world.successor()
    back.versions = {**world.versions, key: str(now)}
    back.up()
    halted = back.of(ev.TrainingHalted)
    assert len(halted) == 1 and back.of(ev.ReplayDiverged) == []
    assert f"steps 1 to 2 are in no checkpoint yet and were made with {key} = {then!r}" in halted[0].reason
    assert f"the trainer runs with {now!r}" in halted[0].reason and f"set [trainer] {key} = {then!r}" in halted[0].hint
    again = back.successor()
    again.versions = world.versions | {"torch": "2.14"}  # what cannot be chosen is tried
    again.up()
    assert again.of(ev.ReplayVerified)[-1].last == 2 and not again.state.daemon.halted
    again.give(inp.CheckpointRequested("test"))
    again.settle()
    last = again.successor()
    last.versions = back.versions
    last.up()
    assert not last.state.daemon.halted and last.of(ev.TrainerAttached)[-1].replayed == 0


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("rank", 8, "set [trainer] rank back, start, run `apollod ctl checkpoint`"),
        ("limiter_rule", "growth", "start the earlier version of apollod, run `apollod ctl checkpoint`"),
    ],
)
def test_steps_of_other_settings_are_not_run_again(key, value, hint):
    """The rule of the limiter is no setting any more: only the version that had it can run such steps again."""
    world = World(changed(SETTINGS, **{key: value})).up()
    world.lines("a", "b")
    world.settle()
    back = world.successor()
    back.settings = SETTINGS
    back.up()
    (halted,) = back.of(ev.TrainingHalted)
    assert f"made with {key} = {value!r}" in halted.reason and hint in halted.hint


def test_a_divergence_says_what_ran_otherwise():
    world = World()
    world.versions = {"threads": "4", "torch": "2.13", "device": "cpu A"}
    world.up()
    world.lines("a")
    world.settle()
    back = world.successor()
    back.versions = {"threads": "4", "torch": "2.14", "device": "cpu B"}
    back.start()
    back.engine_up()
    back.settle_until(fx.RunStep)
    step = back.asked.popleft()
    back.give(inp.StepDone(step.step, True, 1.0, 1.0, 1.0, 10, 4, "other", 0.1, 0, 0, True))
    assert "torch 2.13 then, 2.14 now, device cpu A then, cpu B now" in back.of(ev.TrainingHalted)[0].hint


def test_a_full_copy_when_the_ways_back_have_grown_past_half_the_model():
    world = World(changed(SETTINGS, keep=100)).up()  # 100 bytes, 5 for each way back
    for number in range(24):
        world.lines(f"e{number}", source=f"{number}")
        world.settle()
        world.give(inp.CheckpointRequested("test"))
        world.settle()
    assert [e.step for e in world.of(ev.CheckpointCommitted) if e.full] == [12, 24]


def test_the_hook_runs_after_each_commit_and_its_failure_is_told():
    world = World(changed(SETTINGS, checkpoint_hook=True)).up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    world.settle()
    assert world.hooked == [1] and [e.step for e in world.of(ev.HookCompleted)] == [1]
    world.lines("b")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    world.settle_until(fx.RunHook)
    world = world.crash_and_return()  # in the middle of it: it is run again
    assert world.hooked == [2] and world.state.checkpoints.hook_due is None
    world.give(inp.HookDone(2, "", 2.0, "exit code 23: no route to host"))
    assert world.of(ev.HookFailed)[0].reason.endswith("no route to host") and not blocked(Activity.STEP, world.state)


def test_the_last_checkpoint_is_written_though_the_engine_is_gone():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.StopRequested("SIGTERM"))
    world.asked.rotate(1)  # the writing comes first in the queue and is slow: the engine ends in the middle
    world.answer()
    world.exit("engine", 0)
    world.settle()
    assert world.exited and world.state.checkpoints.newest.step == 1 and not world.of(ev.CheckpointFailed)


def test_an_example_is_sent_for_tokenising_once():
    world = World().up()
    world.lines("a")
    world.lines("b", source="other")
    asked = [e.examples for e in world.asked if isinstance(e, fx.EncodeExamples)]
    assert asked == [("a",)]
    world.settle()
    assert world.state.training.version == 2


def test_an_answer_about_other_examples_than_those_that_wait_changes_nothing():
    world = World().up()
    world.lines("a")
    seq = world.state.seq
    world.give(inp.EncodeDone([world.encoded("stranger")]))
    assert world.state.seq == seq
    world.settle()
    assert world.state.training.version == 1


def test_a_step_without_finite_loss_counts_but_changes_nothing():
    world = World().up()
    world.lines("a", "b")
    world.answer()
    step = world.asked.popleft()
    before = world.state.training.fingerprint
    world.give(inp.StepDone(step.step, False, None, 0.0, 0.0, 10, 4, before, 0.1, 0, 0, note="loss is nan"))
    assert world.state.training.version == 1 and world.state.training.fingerprint == before
    assert world.of(ev.StepCompleted)[0].applied is False


def test_a_removal_that_a_crash_cut_off_is_done_at_the_next_start():
    world = World(changed(SETTINGS, keep=1)).up()
    for name in "ab":
        world.lines(name, source=name)
        world.settle()
        world.give(inp.CheckpointRequested("test"))
        world.settle_until(fx.RemoveCheckpoint) if name == "b" else world.settle()
    assert sorted(world.disk) == ["/s/checkpoints/step-00000001", "/s/checkpoints/step-00000002"]
    world = world.crash_and_return()
    assert sorted(world.disk) == ["/s/checkpoints/step-00000002"] == [c.path for c in world.state.checkpoints.committed]


def test_a_life_with_other_settings_says_which():
    world = World().up()
    again = world.successor()
    again.give(inp.Started(1, "test", SETTINGS, "/s", ""))
    assert again.of(ev.ConfigChanged) == []
    last = again.successor()
    last.give(inp.Started(1, "test", changed(SETTINGS, lr=0.5, betas=(0.5, 0.75), freeze=("a",)), "/s", ""))
    assert last.of(ev.ConfigChanged) == [
        ev.ConfigChanged(
            {
                "trainer.betas": [list(SETTINGS.trainer.betas), [0.5, 0.75]],
                "trainer.lr": [SETTINGS.trainer.lr, 0.5],
                "trainer.freeze": [[], ["a"]],
            }
        )
    ]


@pytest.mark.parametrize(("applied", "skipped"), [(False, 0), (True, 1)])
def test_a_replay_that_comes_to_the_recorded_weights_in_another_way_has_diverged(applied, skipped):
    world = World().up()
    world.lines("a")
    world.settle()
    world.exit("trainer")
    world.pass_time(5)
    world.settle_until(fx.RunStep)
    step, recorded = world.asked.popleft(), world.state.training.fingerprint
    world.give(inp.StepDone(step.step, applied, 1.0, 1.0, 1.0, 10, 4, recorded, 0.1, 0, skipped, True))
    (diverged,) = world.of(ev.ReplayDiverged)
    assert f"applied True then, {applied} now; skipped 0 then, {skipped} now" in diverged.detail
    assert "replay of step 1" in world.state.daemon.halted and not world.of(ev.ReplayVerified)


def test_a_checkpoint_that_a_crash_left_whole_with_other_weights_than_the_journals_is_none():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("test"))
    path = world.state.checkpoints.open.path
    again = world.successor()
    again.start()
    again.settle_until(fx.ObserveCheckpoint)
    again.asked.popleft()
    again.give(inp.CheckpointObserved(1, path, "others"))
    (failed,) = again.of(ev.CheckpointFailed)
    assert "fingerprint is others" in failed.reason and again.state.checkpoints.newest is None


def test_after_a_stop_whose_checkpoint_failed_the_next_life_writes_one_when_it_is_stopped():
    world = World().up()
    world.lines("a")
    world.settle()
    world.give(inp.StopRequested("test"))
    asked = next(one for one in world.asked if isinstance(one, fx.WriteCheckpoint))
    world.asked.remove(asked)
    world.give(inp.CheckpointWritten(asked.step, asked.path, "", 0, 0.0, error="disk full"))
    world.settle()
    assert world.exited and world.state.checkpoints.newest is None
    again = world.crash_and_return()
    again.pass_time(70)
    again.give(inp.StopRequested("test"))
    again.settle()
    assert again.exited and again.state.checkpoints.newest is not None and again.state.checkpoints.newest.step == 1
