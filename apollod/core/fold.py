"""How each fact changes the state.

Law: `fold` is the only writer. It changes the state it is given and returns it, so that a million events fold in seconds.
"""

from collections.abc import Callable

from apollod.core import events as ev
from apollod.core.schedules import CHECKPOINT_RETRY_S, EXITS_MAX
from apollod.core.state import SECOND_NS, CheckpointRef, Child, Position, Running, State, Waiting, Window


def fold(state: State, recorded: ev.Recorded) -> State:
    """Apply one recorded event to `state` and return it."""
    state.seq = recorded.seq
    handler = _FOLDS.get(type(recorded.event))
    if handler is not None:
        handler(state, recorded.event, recorded.at_ns)
    return state


def _daemon_started(s: State, e: ev.DaemonStarted, at_ns: int) -> None:
    s.settings, s.state_dir, s.started_at_ns = e.settings, e.state_dir, at_ns
    s.model_path = s.model_path or e.settings.model_path
    s.stopping = s.stopped = s.engine_fresh = s.last_one_failed = False
    s.halted, s.unlearned = "", 0  # a new life tries again; what was wrong will say so again
    s.engine, s.trainer, s.engine_facts, s.bound = Child(), Child(), None, None
    s.engine_paused, s.aligning = False, None


def _shutdown_requested(s: State, e: ev.ShutdownRequested, at_ns: int) -> None:
    s.stopping = True


def _daemon_stopped(s: State, e: ev.DaemonStopped, at_ns: int) -> None:
    s.stopped = True


def _paused(s: State, e: ev.TrainingPaused, at_ns: int) -> None:
    s.paused = True


def _halted(s: State, e: ev.TrainingHalted, at_ns: int) -> None:
    s.halted = f"{e.reason}; {e.hint}" if e.hint else e.reason
    s.aligning = None


def _resumed(s: State, e: ev.TrainingResumed, at_ns: int) -> None:
    if s.halted and s.trainer.phase != "absent":
        s.trainer.doomed = True
    s.paused, s.halted, s.unlearned = False, "", 0
    for child in (s.engine, s.trainer):
        child.given_up, child.retry_at_ns, child.refusals, child.crashes_ns = False, 0, 0, []


def _engine_spawned(s: State, e: ev.EngineSpawned, at_ns: int) -> None:
    s.engine.spawned(e.pid)
    s.engine_facts, s.engine_dir = None, e.model_dir


def _engine_ready(s: State, e: ev.EngineReady, at_ns: int) -> None:
    s.engine.phase, s.engine.error, s.engine.refusals = "ready", "", 0
    s.engine_facts, s.engine_fresh = e, True


def _engine_exited(s: State, e: ev.EngineExited, at_ns: int) -> None:
    mapped = s.engine_facts is not None and s.engine_facts.bridge == "memfd"  # such memory lives as long as the trainer maps it
    s.engine.exited(at_ns, e.reason, e.refused, e.expected)
    s.engine_facts, s.engine_fresh, s.engine_paused, s.aligning = None, False, False, None
    if s.stopping and mapped:
        return  # the last checkpoint is written meanwhile
    s.bound = None
    if s.trainer.phase != "absent":
        # Its views point into memory of an engine that is gone.
        s.trainer.phase, s.trainer.doomed = "spawned", True


def _trainer_spawned(s: State, e: ev.TrainerSpawned, at_ns: int) -> None:
    s.trainer.spawned(e.pid)
    s.bound = None


def _trainer_bound(s: State, e: ev.TrainerBound, at_ns: int) -> None:
    s.bound, s.engine_fresh = e, False
    if not s.base_fingerprint:
        s.base_fingerprint = s.fingerprint = e.fingerprint


def _trainer_attached(s: State, e: ev.TrainerAttached, at_ns: int) -> None:
    s.trainer.phase, s.trainer.error, s.state_bytes = "ready", "", e.state_bytes
    s.fence_expired, s.aligned_version = False, -1


def _trainer_exited(s: State, e: ev.TrainerExited, at_ns: int) -> None:
    if s.running is not None and s.trainer.phase == "ready" and not e.expected:
        s.running.attempts += 1
    s.trainer.exited(at_ns, e.reason, e.refused, e.expected)
    s.bound = s.aligning = None


def _source_consumed(s: State, e: ev.SourceConsumed, at_ns: int) -> None:
    position = Position(e.source, e.offset, e.line, e.tail)
    s.sources[position.file] = position


def _source_quarantined(s: State, e: ev.SourceQuarantined, at_ns: int) -> None:
    s.counts.rejected += 1


def _example_accepted(s: State, e: ev.ExampleAccepted, at_ns: int) -> None:
    s.counts.accepted += 1
    _queue(s, e.example, e.tier)


def _queue(s: State, example: str, tier: ev.Tier) -> None:
    waiting = Waiting(example, tier=tier)
    s.waiting.append(waiting)
    s.untokenised.append(waiting)


def _example_duplicate(s: State, e: ev.ExampleDuplicate, at_ns: int) -> None:
    s.counts.duplicates += 1


def _example_encoded(s: State, e: ev.ExampleEncoded, at_ns: int) -> None:
    s.untokenised.popleft().digest = e.digest


def _example_rejected(s: State, e: ev.ExampleRejected, at_ns: int) -> None:
    s.counts.rejected += 1
    # The first of those not yet tokenised, which end the queue: at a place, since a search begins at the other end of all that waits.
    del s.waiting[len(s.waiting) - len(s.untokenised)]
    s.untokenised.popleft()


def _window_opened(s: State, e: ev.WindowOpened, at_ns: int) -> None:
    s.window, s.windows = Window(e.window, e.planned), e.window


def _window_closed(s: State, e: ev.WindowClosed, at_ns: int) -> None:
    s.window = None


def _step_started(s: State, e: ev.StepStarted, at_ns: int) -> None:
    s.step, s.fence_expired = e.step, False
    examples = ev.all_examples(e)
    taken = [s.waiting.popleft() for _ in examples]
    s.running = Running(
        e.step, e.parent, examples, e.digests or (e.digest,), e.lr, e.loss_limit, e.window, taken[0].tier
    )
    if s.window is not None:
        s.window.steps += 1
        s.window.examples += len(taken)


def _step_completed(s: State, e: ev.StepCompleted, at_ns: int) -> None:
    examples, skipped = ev.all_examples(e), e.skipped_zero + e.skipped_nonfinite
    digests, limit = (s.running.digests, s.running.loss_limit) if s.running else (("",) * len(examples), 0.0)
    s.since.append(ev.Again(e.step, examples, digests, e.lr, limit, e.applied, skipped, e.fingerprint))
    s.version, s.fingerprint, s.running, s.last_training_ns = e.step, e.fingerprint, None, at_ns
    s.learned_with = s.settings
    if not e.applied:
        s.counts.skipped += len(examples)
        s.unlearned += 1
        return
    s.counts.trained += len(examples)
    s.unlearned = 0
    if s.window is not None and e.loss is not None:
        s.window.losses += 1
        s.window.loss_total += e.loss


def _step_failed(s: State, e: ev.StepFailed, at_ns: int) -> None:
    running, s.running = s.running, None
    if e.apart and running is not None:
        again = [Waiting(*pair, running.tier, alone=True) for pair in zip(running.examples, running.digests, strict=True)]
        s.waiting.extendleft(reversed(again))
    else:
        s.counts.held += 1
        s.unlearned += 1
    _absolve(s.trainer, e.attempts)


def _absolve(trainer: Child, attempts: int) -> None:
    """Trainers that died over an example which is now out of the way say nothing about the next one."""
    if trainer.phase == "ready":  # the last of them said why and is about to leave; it takes no more steps
        trainer.phase, trainer.doomed = "spawned", True
        attempts -= 1
    if attempts:
        del trainer.crashes_ns[-attempts:]
        trainer.given_up = len(trainer.crashes_ns) >= EXITS_MAX


def _engine_paused(s: State, e: ev.EnginePaused, at_ns: int) -> None:
    s.engine_paused = True


def _engine_resumed(s: State, e: ev.EngineResumed, at_ns: int) -> None:
    s.engine_paused, s.fence_expired = False, e.expired
    s.serve_until_ns = at_ns + int(e.seconds * SECOND_NS) if e.active else 0


def _alignment_started(s: State, e: ev.AlignmentStarted, at_ns: int) -> None:
    s.aligning = e


def _alignment_measured(s: State, e: ev.AlignmentMeasured, at_ns: int) -> None:
    s.alignment, s.aligned_version = e, e.step
    if e.aligned:
        s.aligning = None  # otherwise training halts as soon as it is known where the difference comes from


def _alignment_failed(s: State, e: ev.AlignmentFailed, at_ns: int) -> None:
    s.aligning, s.aligned_version = None, e.step


def _checkpoint_started(s: State, e: ev.CheckpointStarted, at_ns: int) -> None:
    s.checkpointing = e


def _checkpoint_committed(s: State, e: ev.CheckpointCommitted, at_ns: int) -> None:
    s.checkpointing = None
    ref = CheckpointRef(e.step, e.path, e.fingerprint, at_ns, e.bytes, e.delta_bytes, e.full)
    s.checkpoints = [c for c in s.checkpoints if c.path != e.path] + [ref]
    s.hook_due = ref
    if s.rolling_back is None:  # else the trainer is on its way from another one
        _start_from(s, ref)


def _start_from(s: State, ref: CheckpointRef) -> None:
    """What a recovery starts from, unless the checkpoint is of steps that were taken back while it was written."""
    if ref.step == s.version or any(done.step == ref.step for done in s.since):
        s.origin = ref
        s.since = [done for done in s.since if done.step > ref.step]


def _checkpoint_failed(s: State, e: ev.CheckpointFailed, at_ns: int) -> None:
    s.checkpointing = None
    s.checkpoint_retry_ns = at_ns + int(CHECKPOINT_RETRY_S * SECOND_NS)
    s.last_one_failed = s.stopping


def _checkpoint_removed(s: State, e: ev.CheckpointRemoved, at_ns: int) -> None:
    s.checkpoints = [c for c in s.checkpoints if c.path != e.path]
    s.removed = e.path


def _hook_done(s: State, e: ev.HookCompleted | ev.HookFailed, at_ns: int) -> None:
    due = s.hook_due
    if due is not None and (due.step, due.path) == (e.step, e.path or due.path):
        s.hook_due = None


def _rollback_requested(s: State, e: ev.RollbackRequested, at_ns: int) -> None:
    s.rollback_wanted = e
    if s.halted and s.trainer.phase != "absent":
        s.trainer.doomed = True


def _rollback_refused(s: State, e: ev.RollbackRefused, at_ns: int) -> None:
    s.rollback_wanted = None


def _rollback_started(s: State, e: ev.RollbackStarted, at_ns: int) -> None:
    s.rollback_wanted, s.rolling_back, s.rollback_ns = None, e, at_ns
    s.version, s.fingerprint, s.since = e.to, e.fingerprint, list(e.replay)
    s.origin = s.checkpoint_at(e.origin)
    s.learned_with = s.settings
    s.undone |= dict.fromkeys(e.examples)
    s.counts.trained -= len(e.examples)
    s.halted, s.unlearned, s.aligning = "", 0, None
    s.trainer.given_up, s.trainer.crashes_ns, s.trainer.retry_at_ns = False, [], 0
    if s.trainer.phase == "ready":
        s.trainer.phase = "spawned"


def _rollback_completed(s: State, e: ev.RollbackCompleted, at_ns: int) -> None:
    s.rolling_back = None
    if s.checkpoint is not None:  # it may have been committed meanwhile
        _start_from(s, s.checkpoint)


def _example_requeued(s: State, e: ev.ExampleRequeued, at_ns: int) -> None:
    s.undone.pop(e.example, None)
    _queue(s, e.example, e.tier)


def _base_kept(s: State, e: ev.BaseKept, at_ns: int) -> None:
    s.base, s.base_lost = e, ""


def _base_lost(s: State, e: ev.BaseLost, at_ns: int) -> None:
    s.base, s.base_lost = None, e.reason


_FOLDS: dict[type[ev.Event], Callable[..., None]] = {
    ev.DaemonStarted: _daemon_started,
    ev.ShutdownRequested: _shutdown_requested,
    ev.DaemonStopped: _daemon_stopped,
    ev.TrainingPaused: _paused,
    ev.TrainingHalted: _halted,
    ev.TrainingResumed: _resumed,
    ev.EngineSpawned: _engine_spawned,
    ev.EngineReady: _engine_ready,
    ev.EngineExited: _engine_exited,
    ev.TrainerSpawned: _trainer_spawned,
    ev.TrainerBound: _trainer_bound,
    ev.TrainerAttached: _trainer_attached,
    ev.TrainerExited: _trainer_exited,
    ev.SourceConsumed: _source_consumed,
    ev.SourceQuarantined: _source_quarantined,
    ev.ExampleAccepted: _example_accepted,
    ev.ExampleDuplicate: _example_duplicate,
    ev.ExampleEncoded: _example_encoded,
    ev.ExampleRejected: _example_rejected,
    ev.WindowOpened: _window_opened,
    ev.WindowClosed: _window_closed,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.EnginePaused: _engine_paused,
    ev.EngineResumed: _engine_resumed,
    ev.AlignmentStarted: _alignment_started,
    ev.AlignmentMeasured: _alignment_measured,
    ev.AlignmentFailed: _alignment_failed,
    ev.CheckpointStarted: _checkpoint_started,
    ev.CheckpointCommitted: _checkpoint_committed,
    ev.CheckpointFailed: _checkpoint_failed,
    ev.CheckpointRemoved: _checkpoint_removed,
    ev.HookCompleted: _hook_done,
    ev.HookFailed: _hook_done,
    ev.RollbackRequested: _rollback_requested,
    ev.RollbackRefused: _rollback_refused,
    ev.RollbackStarted: _rollback_started,
    ev.RollbackCompleted: _rollback_completed,
    ev.ExampleRequeued: _example_requeued,
    ev.BaseKept: _base_kept,
    ev.BaseLost: _base_lost,
}
