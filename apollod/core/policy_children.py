"""When engine and trainer start, and what their end means."""

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.policy_train import fail_step
from apollod.core.schedules import STEP_ATTEMPTS_MAX
from apollod.core.state import State

Outcome = tuple[list[ev.Event], list[fx.Effect]]


def start_children(state: State, now_ns: int) -> list[fx.Effect]:
    """Start what is down and may start. The trainer comes up beside the engine, so that their imports overlap."""
    open_ = state.checkpointing
    if open_ is not None and state.trainer.phase == "absent":
        # Whoever wrote it is gone: nobody reads the model directory before it is whole again.
        return [fx.ObserveCheckpoint(open_.step, open_.path)]
    effects: list[fx.Effect] = []
    if state.engine.may_start(now_ns):
        effects.append(fx.SpawnEngine(state.model_path))
    wanted = not state.halted and not state.engine.given_up and state.rollback_wanted is None
    if state.trainer.may_start(now_ns) and wanted:
        effects.append(fx.SpawnTrainer())
    return effects


def on_engine_started(state: State, input_: inp.EngineStarted, now_ns: int) -> Outcome:
    """The process exists; it is ready only when the manifest is here and /health answers."""
    return [ev.EngineSpawned(pid=input_.pid, model_dir=input_.model_dir, attempt=state.engine.spawns + 1)], []


def on_trainer_started(state: State, input_: inp.TrainerStarted, now_ns: int) -> Outcome:
    """A trainer beside a serving engine is attached at once."""
    effects: list[fx.Effect] = [fx.AttachTrainer(state.engine_fresh)] if state.engine.phase == "ready" else []
    return [ev.TrainerSpawned(pid=input_.pid, attempt=state.trainer.spawns + 1)], effects


def on_engine_up(state: State, input_: inp.EngineUp, now_ns: int) -> Outcome:
    """The engine serves; a waiting trainer is attached to freshly loaded weights."""
    ready = ev.EngineReady(
        pid=input_.pid, url=input_.url, model=input_.model, bridge=input_.bridge, parameters=input_.parameters,
        live=input_.live, cast=input_.cast, rederive=input_.rederive, frozen=input_.frozen, bytes=input_.bytes,
        seconds=input_.seconds, versions=input_.versions,
    )
    waiting = state.trainer.phase == "spawned" and not state.trainer.doomed
    return [ready], [fx.AttachTrainer(True)] if waiting else []


def on_child_exited(state: State, input_: inp.ChildExited, now_ns: int) -> Outcome:
    """A child's end. With the engine the trainer's memory is gone; with the trainer its open intents are."""
    if input_.role == "engine":
        expected = state.stopping or state.engine.doomed
        exited = ev.EngineExited(
            pid=input_.pid, code=input_.code, reason=input_.reason, refused=input_.refused, expected=expected
        )
        doomed = state.trainer.phase != "absent" and not state.stopping
        return [exited], [fx.StopChild("trainer", 0.0)] if doomed else []
    expected = state.stopping or state.trainer.doomed
    events: list[ev.Event] = [
        ev.TrainerExited(
            pid=input_.pid, code=input_.code, reason=input_.reason, refused=input_.refused, expected=expected
        )
    ]
    running = state.running
    if running and not expected and state.trainer.phase == "ready" and running.attempts + 1 >= STEP_ATTEMPTS_MAX:
        events += fail_step(state, input_.reason)
    return events, []


def on_resume(state: State, input_: inp.ResumeRequested, now_ns: int) -> Outcome:
    """Train again. After a halt the trainer starts from scratch: what it holds is not to be trusted."""
    effects: list[fx.Effect] = []
    if state.halted and state.trainer.phase != "absent":
        effects.append(fx.StopChild("trainer", 0.0))
    waiting = state.engine.error or state.trainer.error or state.paused or state.halted
    return ([ev.TrainingResumed(by=input_.by)] if waiting else []), effects
