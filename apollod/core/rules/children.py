"""Engine and trainer as processes: their starts and ends. Decisions, folds and status."""

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked, orphaned_checkpoint
from apollod.core.facts.children import NO_ENGINE, Child, ChildrenState
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.schedules import NO_FAILURE, SECOND_NS, elapsed_s, is_due
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _daemon_started(own: ChildrenState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.engine, own.trainer, own.engine_facts, own.bound, own.engine_fresh = Child(), Child(), None, None, False


def _engine_spawned(own: ChildrenState, state: State, e: ev.EngineSpawned, at_ns: int) -> None:
    own.engine.spawned(e.pid, at_ns)
    own.engine_facts, own.engine_dir = None, e.model_dir


def _engine_ready(own: ChildrenState, state: State, e: ev.EngineReady, at_ns: int) -> None:
    own.engine.phase, own.engine.error, own.engine.refusals = "ready", "", 0
    own.engine_facts, own.engine_fresh = e, True


def _engine_exited(own: ChildrenState, state: State, e: ev.EngineExited, at_ns: int) -> None:
    outlived = own.outlived
    own.engine.exited(at_ns, e.reason, e.refused, e.expected)
    own.engine_facts, own.engine_fresh = None, False
    if state.daemon.stopping and outlived:
        return  # the last checkpoint is written meanwhile
    own.bound = None
    if own.trainer.phase != "absent":
        # Its views point into memory of an engine that is gone.
        own.trainer.phase, own.trainer.doomed = "spawned", True


def _trainer_spawned(own: ChildrenState, state: State, e: ev.TrainerSpawned, at_ns: int) -> None:
    own.trainer.spawned(e.pid, at_ns)
    own.bound = None


def _trainer_bound(own: ChildrenState, state: State, e: ev.TrainerBound, at_ns: int) -> None:
    own.bound, own.engine_fresh = e, False


def _trainer_attached(own: ChildrenState, state: State, e: ev.TrainerAttached, at_ns: int) -> None:
    own.trainer.phase, own.trainer.error, own.state_bytes = "ready", "", e.state_bytes


def _trainer_exited(own: ChildrenState, state: State, e: ev.TrainerExited, at_ns: int) -> None:
    own.trainer.exited(at_ns, e.reason, e.refused, e.expected)
    own.bound = None


def _resumed(own: ChildrenState, state: State, e: ev.TrainingResumed, at_ns: int) -> None:
    if state.daemon.halted and own.trainer.phase != "absent":
        # Its memory cannot be trusted: ask it nothing more.
        own.trainer.phase, own.trainer.doomed = "spawned", True
    for child in (own.engine, own.trainer):
        child.given_up, child.retry, child.refusals, child.crashes_ns = False, NO_FAILURE, 0, []


def _step_failed(own: ChildrenState, state: State, e: ev.StepFailed, at_ns: int) -> None:
    attempts = e.attempts
    if own.trainer.phase == "ready":  # the last attempt was refused with a reason, no crash
        attempts -= 1
        if e.torn:  # it is about to leave, and takes no more steps
            own.trainer.phase, own.trainer.doomed = "spawned", True
    own.trainer.absolved(attempts)


def _rollback_requested(own: ChildrenState, state: State, e: ev.RollbackRequested, at_ns: int) -> None:
    if state.daemon.halted and own.trainer.phase != "absent":
        own.trainer.doomed = True


def _rollback_started(own: ChildrenState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    own.trainer.given_up, own.trainer.crashes_ns, own.trainer.retry = False, [], NO_FAILURE
    if own.trainer.phase == "ready":
        own.trainer.phase = "spawned"


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.EngineSpawned: _engine_spawned,
    ev.EngineReady: _engine_ready,
    ev.EngineExited: _engine_exited,
    ev.TrainerSpawned: _trainer_spawned,
    ev.TrainerBound: _trainer_bound,
    ev.TrainerAttached: _trainer_attached,
    ev.TrainerExited: _trainer_exited,
    ev.TrainingResumed: _resumed,
    ev.StepFailed: _step_failed,
    ev.RollbackRequested: _rollback_requested,
    ev.RollbackStarted: _rollback_started,
}


# --- decisions -------------------------------------------------------------------------------------------------------

TRAINER_GRACE_S = 2.0
ENGINE_GRACE_S = 6.0


def close(state: State, now_ns: int) -> Outcome:
    """Start children that are down and may start; when the daemon stops, end them."""
    return Outcome([], _stop(state, now_ns) if state.daemon.stopping else _start(state, now_ns))


def _start(state: State, now_ns: int) -> list[fx.Effect]:
    """Start both children side by side, so that their imports overlap; an engine only once no checkpoint is left whose
    writer is gone, since it reads the model directory."""
    effects: list[fx.Effect] = []
    if state.children.engine.may_start(now_ns) and not orphaned_checkpoint(state):
        effects.append(fx.SpawnEngine(state.daemon.model_path))
    if state.children.trainer.may_start(now_ns) and not blocked(Activity.RECOVERY, state):
        effects.append(fx.SpawnTrainer())
    return effects


def _stop(state: State, now_ns: int) -> list[fx.Effect]:
    """End the trainer after its step and the last checkpoint, then the engine. An engine that does not serve yet is not
    waited for."""
    engine, trainer = state.children.engine, state.children.trainer
    at_work = state.training.running is not None and not state.daemon.halted  # the trainer leaves the step after a halt
    if trainer.phase == "ready" and (at_work or state.checkpoints.open) and not (at_work and _too_long(state, now_ns)):
        return []
    effects: list[fx.Effect] = []
    if trainer.phase != "absent":
        effects.append(fx.StopChild("trainer", TRAINER_GRACE_S))
    served = engine.phase == "ready" and trainer.phase != "absent"
    if engine.phase != "absent" and not served and not orphaned_checkpoint(state):
        effects.append(fx.StopChild("engine", ENGINE_GRACE_S))
    return effects


def _too_long(state: State, now_ns: int) -> bool:
    """True if the stop has waited `stop_s` for the running step. The step is then torn, as by a crash, and run again in
    the next life."""
    settings = state.daemon.settings
    limit_s = settings.trainer.stop_s if settings else 0.0
    return is_due(now_ns, state.daemon.stopping_since_ns + int(limit_s * SECOND_NS), limit_s)


def _on_engine_started(state: State, input_: inp.EngineStarted, now_ns: int) -> Outcome:
    """Record the process; it is ready only when the manifest is here and /health answers."""
    attempt = state.children.engine.spawns + 1
    return Outcome([ev.EngineSpawned(pid=input_.pid, model_dir=input_.model_dir, attempt=attempt)], [])


def _on_trainer_started(state: State, input_: inp.TrainerStarted, now_ns: int) -> Outcome:
    """Attach the trainer at once if the engine serves."""
    children = state.children
    effects: list[fx.Effect] = [fx.AttachTrainer(children.engine_fresh)] if children.engine.phase == "ready" else []
    return Outcome([ev.TrainerSpawned(pid=input_.pid, attempt=children.trainer.spawns + 1)], effects)


def _on_engine_ready(state: State, input_: inp.EngineReady, now_ns: int) -> Outcome:
    """Record that the engine serves, and attach a waiting trainer to the freshly loaded weights."""
    waiting = state.children.trainer.phase == "spawned" and not state.children.trainer.doomed
    return Outcome([input_], [fx.AttachTrainer(True)] if waiting else [])


def _on_engine_exited(state: State, input_: inp.EngineExited, now_ns: int) -> Outcome:
    """Record its end, which takes the trainer's memory with it."""
    stopping = state.daemon.stopping
    ended = msgspec.structs.replace(input_, expected=stopping or state.children.engine.doomed)
    lost = state.children.trainer.phase != "absent" and not stopping
    return Outcome([ended], [fx.StopChild("trainer", 0.0)] if lost else [])


def _on_trainer_exited(state: State, input_: inp.TrainerExited, now_ns: int) -> Outcome:
    """Record its end, which takes its open intents with it."""
    expected = state.daemon.stopping or state.children.trainer.doomed
    return Outcome([msgspec.structs.replace(input_, expected=expected)], [])


def _on_resume(state: State, input_: inp.TrainingResumed, now_ns: int) -> Outcome:
    """Stop the trainer after a halt, so that it starts from scratch: its memory cannot be trusted."""
    distrusted = state.daemon.halted and state.children.trainer.phase != "absent"
    return Outcome([], [fx.StopChild("trainer", 0.0)]) if distrusted else nothing()


HANDLERS: Handlers = {
    inp.EngineStarted: _on_engine_started,
    inp.TrainerStarted: _on_trainer_started,
    inp.EngineReady: _on_engine_ready,
    inp.EngineExited: _on_engine_exited,
    inp.TrainerExited: _on_trainer_exited,
    inp.TrainingResumed: _on_resume,
}


# --- status ----------------------------------------------------------------------------------------------------------


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A child process."""

    pid: int | None
    """null while it is down"""
    ready: bool
    """engine: it serves; trainer: weights and optimizer are those of the last step"""
    restarts: int
    """starts after the first since the daemon started"""
    given_up: bool = False
    """it crashed too often; `apollod ctl resume` tries again"""
    error: str = ""
    """why it last ended, unless on request"""


class Engine(Process, frozen=True, kw_only=True):
    """vLLM."""

    url: str
    """URL of its API; empty until it is ready"""
    model: str
    """the name under which the model is served; empty until it is ready"""
    path: str = ""
    """directory from which the model was loaded"""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of engine and trainer towards the next step."""

    phase: str
    """`loading`: the engine reads the weights; `compiling`: it prepares to serve; `attaching`: the trainer binds to
    them; `restoring`: a checkpoint; `replaying`: steps since then; `aligning`: both are compared"""
    elapsed_s: float
    """time since the start of the process, the comparison or the rollback"""
    done: int = 0
    """steps replayed so far"""
    of: int = 0
    """steps to replay"""


def trainer(state: State) -> Process:
    """The trainer's process."""
    return _process(state.children.trainer)


def engine(state: State) -> Engine:
    """The engine's process, and the model that it serves."""
    own = state.children
    return composed(Engine, own.engine_facts or NO_ENGINE, _process(own.engine), path=own.engine_dir)


def start(state: State, now_ns: int, loaded: bool, replaying: int) -> Start | None:
    """The phase of the start or comparison that steps wait for, if any. `loaded`: the engine has loaded the weights;
    `replaying`: the step that the trainer was told to replay (0: none)."""
    engine, trainer, alignment = state.children.engine, state.children.trainer, state.alignment
    if engine.phase == "spawned":
        phase, since_ns = "compiling" if loaded else "loading", engine.spawned_ns
    elif trainer.phase == "spawned" and state.children.bound is None:
        phase, since_ns = "attaching", trainer.spawned_ns
    elif trainer.phase == "spawned":
        back = state.rollback.under_way is not None
        phase, since_ns = "restoring", state.rollback.started_ns if back else trainer.spawned_ns
    elif alignment.waited_for:
        phase, since_ns = "aligning", alignment.opened_ns
    else:
        return None
    steps = [done.step for done in state.recovery.since]
    found = Start(phase=phase, elapsed_s=elapsed_s(since_ns, now_ns))
    if phase != "restoring" or replaying not in steps:
        return found
    return msgspec.structs.replace(found, phase="replaying", done=steps.index(replaying), of=len(steps))


def _process(child: Child) -> Process:
    return composed(
        Process, child, pid=child.pid or None, ready=child.phase == "ready", restarts=max(0, child.spawns - 1)
    )
