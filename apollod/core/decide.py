"""The heart: `decide(state, input, now) -> (events, effects)`, a pure function.

Law: the state is read, never changed. The loop appends the events (durable first), folds them, and only then runs the
effects. What is safe to ask for again and again (starting a child that is down) needs no intent event; everything else
is an event first. After every input the loop asks `Advance` until nothing more follows.
"""

from collections.abc import Callable
from typing import NamedTuple

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.intake import intake_events
from apollod.core.policy_align import advance_alignment, on_compared, on_probed, on_scored
from apollod.core.policy_children import (
    on_child_exited,
    on_engine_started,
    on_engine_up,
    on_resume,
    on_trainer_started,
    start_children,
)
from apollod.core.policy_publish import on_engine_paused, on_engine_resumed, open_fence, publish
from apollod.core.policy_recovery import on_base_done, on_bound, on_refused, on_replayed, on_restored, on_started
from apollod.core.policy_rollback import advance_rollback, on_relearn_requested, on_rollback_planned, on_rollback_requested
from apollod.core.policy_train import (
    advance_training,
    encode_effect,
    on_checkpoint_observed,
    on_checkpoint_requested,
    on_checkpoint_written,
    on_encoded,
    on_hook_done,
    on_step_done,
    on_step_failed,
    run_hook,
)
from apollod.core.state import State

TRAINER_GRACE_S = 2.0
ENGINE_GRACE_S = 6.0


class Decision(NamedTuple):
    """Facts to record, then things to do."""

    events: list[ev.Event]
    effects: list[fx.Effect]


def decide(state: State, input_: inp.Input, now_ns: int) -> Decision:
    """What follows from `input_` at time `now_ns` (nanoseconds since the epoch) in `state`."""
    handler: Callable[..., tuple[list[ev.Event], list[fx.Effect]]] = _HANDLERS[type(input_)]
    return Decision(*publish(state, *handler(state, input_, now_ns), now_ns))


def _on_lines(state: State, input_: inp.LinesRead, now_ns: int) -> tuple[list[ev.Event], list[fx.Effect]]:
    events = intake_events(input_.batch, set(input_.known))
    fresh = [e.example for e in events if isinstance(e, ev.ExampleAccepted)]
    tokenising = bool(state.untokenised)
    effects = [] if tokenising or not fresh or state.trainer.phase != "ready" else encode_effect(fresh)
    return events, effects


def _on_pause(state: State, input_: inp.PauseRequested, now_ns: int) -> tuple[list[ev.Event], list[fx.Effect]]:
    return ([] if state.paused else [ev.TrainingPaused(by=input_.by)]), []


def _on_step_done(state: State, input_: inp.StepDone, now_ns: int) -> tuple[list[ev.Event], list[fx.Effect]]:
    return on_replayed(state, input_, now_ns) if input_.replay else on_step_done(state, input_, now_ns)


def _on_stop(state: State, input_: inp.StopRequested, now_ns: int) -> tuple[list[ev.Event], list[fx.Effect]]:
    if state.stopping:
        return [], []
    effects: list[fx.Effect] = []
    if state.engine_facts is None or state.engine_facts.bridge == "memfd":
        # The trainer's mapping outlives the engine, so serving may end while the last checkpoint is written.
        effects.append(fx.StopChild("engine", ENGINE_GRACE_S))
    return [ev.ShutdownRequested(reason=input_.reason)], effects


def _advance(state: State, input_: inp.Advance | inp.Tick, now_ns: int) -> tuple[list[ev.Event], list[fx.Effect]]:
    if state.settings is None or state.stopped:
        return [], []
    first = open_fence(state)
    if state.stopping:
        events, effects = _shut_down(state, now_ns)
        return events, first + effects
    first += run_hook(state)
    if state.rollback_wanted is not None:
        events, effects = advance_rollback(state)
        return events, first + effects + start_children(state, now_ns)
    events, effects = advance_alignment(state)
    if not events:
        events, effects = advance_training(state, now_ns)
    return events, first + effects + start_children(state, now_ns)


def _shut_down(state: State, now_ns: int) -> tuple[list[ev.Event], list[fx.Effect]]:
    """Finish the running step, write what is not on disk, end the children, leave."""
    at_work = state.running is not None and not state.halted  # after a halt nobody works on the step
    if state.trainer.phase == "ready" and (at_work or state.checkpointing):
        return [], []
    if state.trainer.phase == "absent" and state.checkpointing is not None:
        return [], [fx.ObserveCheckpoint(state.checkpointing.step, state.checkpointing.path)]
    if state.trainer.phase == "ready" and state.unsaved and not (state.running or state.last_one_failed):
        return on_checkpoint_requested(state, inp.CheckpointRequested(why="shutdown"), now_ns)
    effects: list[fx.Effect] = []
    if state.trainer.phase != "absent":
        effects.append(fx.StopChild("trainer", TRAINER_GRACE_S))
    if state.engine.phase != "absent":
        effects.append(fx.StopChild("engine", ENGINE_GRACE_S))
    if effects:
        return [], effects
    return [ev.DaemonStopped(step=state.version, fingerprint=state.fingerprint)], [fx.Exit()]


_HANDLERS: dict[type, Callable[..., tuple[list[ev.Event], list[fx.Effect]]]] = {
    inp.Tick: _advance,
    inp.Advance: _advance,
    inp.Started: on_started,
    inp.StopRequested: _on_stop,
    inp.LinesRead: _on_lines,
    inp.CheckpointRequested: on_checkpoint_requested,
    inp.PauseRequested: _on_pause,
    inp.ResumeRequested: on_resume,
    inp.EngineStarted: on_engine_started,
    inp.TrainerStarted: on_trainer_started,
    inp.EngineUp: on_engine_up,
    inp.ChildExited: on_child_exited,
    inp.Bound: on_bound,
    inp.Restored: on_restored,
    inp.EncodeDone: on_encoded,
    inp.StepDone: _on_step_done,
    inp.StepFailed: on_step_failed,
    inp.CheckpointWritten: on_checkpoint_written,
    inp.CheckpointObserved: on_checkpoint_observed,
    inp.HookDone: on_hook_done,
    inp.RollbackRequested: on_rollback_requested,
    inp.RollbackPlanned: on_rollback_planned,
    inp.RelearnRequested: on_relearn_requested,
    inp.BaseDone: on_base_done,
    inp.EnginePaused: on_engine_paused,
    inp.EngineResumed: on_engine_resumed,
    inp.Probed: on_probed,
    inp.Scored: on_scored,
    inp.Compared: on_compared,
    inp.Refused: on_refused,
}
