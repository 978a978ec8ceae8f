"""Starts and stops the daemon, and answers pause and resume requests."""

from typing import Any

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.daemon.given_up import is_given_up
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.state import State


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


def _on_stop(state: State, input_: inp.StopRequested, now_ns: int) -> Outcome:
    return nothing() if state.daemon.stopping else Outcome([ev.ShutdownRequested(reason=input_.reason)], [])


def _on_pause(state: State, input_: inp.PauseRequested, now_ns: int) -> Outcome:
    return nothing() if state.daemon.paused else Outcome([ev.TrainingPaused(by=input_.by)], [])


def _on_resume(state: State, input_: inp.ResumeRequested, now_ns: int) -> Outcome:
    """Resume training, and retry what was given up."""
    return Outcome([ev.TrainingResumed(by=input_.by)], []) if is_given_up(state) else nothing()


def _on_refused(state: State, input_: inp.Refused, now_ns: int) -> Outcome:
    """Halt training with the trainer's reason; serving goes on."""
    if state.daemon.halted:
        return nothing()
    return Outcome([ev.TrainingHalted(reason=input_.reason, hint=input_.hint)], [])


def leave(state: State) -> Outcome:
    """End the daemon once both children are gone."""
    if not state.daemon.stopping or {state.children.engine.phase, state.children.trainer.phase} != {"absent"}:
        return nothing()
    if state.checkpoints.open is not None:
        return nothing()
    return Outcome([ev.DaemonStopped(step=state.training.version, fingerprint=state.training.fingerprint)], [fx.Exit()])


HANDLERS: Handlers = {
    inp.Started: _on_started,
    inp.StopRequested: _on_stop,
    inp.PauseRequested: _on_pause,
    inp.ResumeRequested: _on_resume,
    inp.Refused: _on_refused,
}
