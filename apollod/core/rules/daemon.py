"""A life of the daemon: start and end, settings, pauses and halts. Decisions, folds and status."""

from typing import Any

import msgspec
from msgspec.structs import replace

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.children import Child
from apollod.core.facts.daemon import DaemonState
from apollod.core.facts.quality.state import may_repeat, stops
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules.training import step_runs
from apollod.core.schedules import elapsed_s
from apollod.core.shared.given_up import is_given_up
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _started(own: DaemonState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.settings, own.state_dir, own.started_at_ns = e.settings, e.state_dir, at_ns
    own.history_bytes = e.history_bytes
    if not state.recovery.base_fingerprint:  # no trainer has seen the weights of a model yet
        own.model_path = e.settings.model_path
    own.stopping = own.stopped = False
    own.halted = ""  # a new life tries again; a defect that remains halts it again


def _shutdown_requested(own: DaemonState, state: State, e: ev.ShutdownRequested, at_ns: int) -> None:
    own.stopping, own.stopping_since_ns = True, at_ns


def _stopped(own: DaemonState, state: State, e: ev.DaemonStopped, at_ns: int) -> None:
    own.stopped = True


def _paused(own: DaemonState, state: State, e: ev.TrainingPaused, at_ns: int) -> None:
    own.paused, own.paused_by = True, e.by


def _halted(own: DaemonState, state: State, e: ev.TrainingHalted, at_ns: int) -> None:
    own.halted = f"{e.reason}; {e.hint}" if e.hint else e.reason


def _resumed(own: DaemonState, state: State, e: ev.TrainingResumed, at_ns: int) -> None:
    own.paused, own.paused_by, own.halted = False, "", ""


def _rollback_started(own: DaemonState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    own.halted = ""


def _continued(own: DaemonState, state: State, e: ev.JournalContinued, at_ns: int) -> None:
    own.continued = e


def _carried(own: DaemonState, state: State, e: ev.JournalCarried, at_ns: int) -> None:
    own.model_path = e.model_path


FOLDS: Folds = {
    ev.DaemonStarted: _started,
    ev.ShutdownRequested: _shutdown_requested,
    ev.DaemonStopped: _stopped,
    ev.TrainingPaused: _paused,
    ev.TrainingHalted: _halted,
    ev.TrainingResumed: _resumed,
    ev.RollbackStarted: _rollback_started,
    ev.JournalContinued: _continued,
    ev.JournalCarried: _carried,
}


# --- decisions -------------------------------------------------------------------------------------------------------


def _on_started(state: State, input_: inp.Started, now_ns: int) -> Outcome:
    """Begin a life. A journal belongs to one model: the one to whose weights a trainer was bound first."""
    settings = input_.settings
    belongs_to = state.daemon.model_path if state.recovery.base_fingerprint else ""
    held = sum(checkpoint.bytes for checkpoint in state.checkpoints.committed)
    started = composed(
        ev.DaemonStarted, input_, settings=settings,
        history_bytes=0 if input_.free_bytes is None else history_limit(input_.free_bytes, held),
    )  # fmt: skip
    events: list[ev.Event] = [started]
    if changed := _changes(state.daemon.settings, settings):
        events.append(ev.ConfigChanged(changed))
    if belongs_to and belongs_to != settings.model_path:
        reason, hint = another_model(belongs_to, settings.model_path)
        events.append(ev.TrainingHalted(reason=reason, hint=hint))
    return Outcome(events, [])


def history_limit(free: int, held: int) -> int:
    """Value of `[checkpoint] keep_bytes = "auto"`: half of the `free` bytes and those `held` by checkpoints. At least
    1: 0 would mean no limit."""
    return max(1, (free + held) // 2)


def another_model(belongs_to: str, named: str) -> tuple[str, str]:
    """Error and fix if the configuration names another model than the journal's."""
    return (
        f"this journal belongs to the model {belongs_to}, the configuration names {named}",
        "set [model] path back, or use another [state] dir for the other model",
    )


def _changes(before: ev.Settings | None, now: ev.Settings) -> dict[str, list[Any]]:
    """[before, now] of every setting that differs, as JSON values, by dotted key."""
    if before is None:
        return {}
    old, new = (_flat(msgspec.json.decode(msgspec.json.encode(settings))) for settings in (before, now))
    return {key: [old[key], new[key]] for key in new if old[key] != new[key]}


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _on_stop(state: State, input_: inp.ShutdownRequested, now_ns: int) -> Outcome:
    return nothing() if state.daemon.stopping else Outcome([input_], [])


def _on_pause(state: State, input_: inp.TrainingPaused, now_ns: int) -> Outcome:
    return nothing() if state.daemon.paused else Outcome([input_], [])


def _on_resume(state: State, input_: inp.TrainingResumed, now_ns: int) -> Outcome:
    """Resume training, and retry what was given up."""
    return Outcome([input_], []) if is_given_up(state) else nothing()


def _on_refused(state: State, input_: inp.Refused, now_ns: int) -> Outcome:
    """Halt training with the trainer's reason; serving goes on."""
    if state.daemon.halted:
        return nothing()
    return Outcome([ev.TrainingHalted(reason=input_.reason, hint=input_.hint)], [])


def close(state: State, now_ns: int) -> Outcome:
    """End the daemon once both children are gone."""
    if not state.daemon.stopping or {state.children.engine.phase, state.children.trainer.phase} != {"absent"}:
        return nothing()
    if state.checkpoints.open is not None:
        return nothing()
    return Outcome([ev.DaemonStopped(step=state.training.version, fingerprint=state.training.fingerprint)], [fx.Exit()])


HANDLERS: Handlers = {
    inp.Started: _on_started,
    inp.ShutdownRequested: _on_stop,
    inp.TrainingPaused: _on_pause,
    inp.TrainingResumed: _on_resume,
    inp.Refused: _on_refused,
}


# --- status ----------------------------------------------------------------------------------------------------------

STATES = ("starting", "serving", "training", "paused", "degraded", "stopping")
"""values of `Status.state`; a newer daemon may have more"""


def phase(state: State, journal_error: str) -> str:
    """One of STATES."""
    if state.daemon.stopping or state.daemon.stopped:
        return "stopping"
    if journal_error or state.daemon.halted or state.children.engine.given_up or state.children.trainer.given_up:
        return "degraded"
    if state.children.engine.phase != "ready":
        return "degraded" if state.children.engine.error else "starting"
    if state.daemon.paused:
        return "training" if step_runs(state) else "paused"
    if state.children.trainer.phase != "ready":
        return "degraded" if state.children.trainer.error else "starting"
    if state.quality.incident is not None:
        return "paused" if _person_resumes(state) else "degraded"
    return "training" if state.training.running or state.intake.pending else "serving"


def _person_resumes(state: State) -> bool:
    """True if training waits for a person once the last good weights are back."""
    settings, incident = state.daemon.settings, state.quality.incident
    if incident is not None and incident.phase == "named" and not may_repeat(state.quality, incident):
        return True
    return settings is not None and (settings.quality.resume == "manual" or stops(state.quality.alarms_ns))


def error(state: State, journal_error: str) -> str:
    """Why the daemon does less than it should; empty: all is well."""
    engine, trainer = state.children.engine, state.children.trainer
    return journal_error or state.daemon.halted or engine.error or (trainer.error if trainer.phase != "ready" else "")


def uptime_s(state: State, now_ns: int) -> float:
    """Seconds since the daemon started."""
    return elapsed_s(state.daemon.started_at_ns, now_ns)


def not_begun(state: State) -> State:
    """The state to show before this life's first event: without children and halts of the last life."""
    children = replace(state.children, engine=Child(), trainer=Child(), engine_facts=None, bound=None)
    daemon = replace(state.daemon, stopping=False, stopped=False, halted="")
    return replace(state, children=children, daemon=daemon, training=replace(state.training, running=None))
