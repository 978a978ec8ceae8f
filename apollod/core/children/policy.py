"""Starts and stops engine and trainer, and restarts them with back-off when they end."""

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked, orphaned_checkpoint
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.schedules import SECOND_NS, is_due
from apollod.core.state import State

TRAINER_GRACE_S = 2.0
ENGINE_GRACE_S = 6.0


def advance(state: State, now_ns: int) -> Outcome:
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


def _on_engine_up(state: State, input_: inp.EngineUp, now_ns: int) -> Outcome:
    """Record that the engine serves, and attach a waiting trainer to the freshly loaded weights."""
    waiting = state.children.trainer.phase == "spawned" and not state.children.trainer.doomed
    return Outcome([input_.ready], [fx.AttachTrainer(True)] if waiting else [])


def _on_exited(state: State, input_: inp.ChildExited, now_ns: int) -> Outcome:
    """Record a child's end. The engine's end takes the trainer's memory with it, the trainer's its open intents."""
    engine, trainer, stopping = state.children.engine, state.children.trainer, state.daemon.stopping
    if input_.role == "engine":
        ended = composed(ev.EngineExited, input_, expected=stopping or engine.doomed)
        return Outcome([ended], [fx.StopChild("trainer", 0.0)] if trainer.phase != "absent" and not stopping else [])
    return Outcome([
        composed(ev.TrainerExited, input_, expected=stopping or trainer.doomed)
    ], [])  # fmt: skip


def _on_resume(state: State, input_: inp.ResumeRequested, now_ns: int) -> Outcome:
    """Stop the trainer after a halt, so that it starts from scratch: its memory cannot be trusted."""
    distrusted = state.daemon.halted and state.children.trainer.phase != "absent"
    return Outcome([], [fx.StopChild("trainer", 0.0)]) if distrusted else nothing()


HANDLERS: Handlers = {
    inp.EngineStarted: _on_engine_started,
    inp.TrainerStarted: _on_trainer_started,
    inp.EngineUp: _on_engine_up,
    inp.ChildExited: _on_exited,
    inp.ResumeRequested: _on_resume,
}
