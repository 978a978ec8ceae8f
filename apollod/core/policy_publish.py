"""How a write of the trainer reaches the engine: fenced or not, and what becomes of cached prefixes.

What the trainer writes is decided elsewhere (`RunStep`, `Restore`); here every decision passes through `publish`, which
puts a pause before a write where the configuration wants it. Pausing follows from asking (a write is due), resuming
from the state (`open_fence`: no write is under way or due), so that nothing that ends a write can forget it. The engine
itself ends a pause that lasts too long or whose supervisor is gone.
"""

from collections.abc import Sequence

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.schedules import backoff_s
from apollod.core.state import SECOND_NS, State

Outcome = tuple[list[ev.Event], list[fx.Effect]]

PAUSE_ATTEMPTS_MAX = 3


def publish(state: State, events: list[ev.Event], effects: Sequence[fx.Effect], now_ns: int) -> Outcome:
    """A decision's effects with fences before writes, the prefix-cache policy in refreshes, one more at a window's end."""
    if state.settings is None:
        return events, list(effects)
    closed = _fence_closed(state, events)
    attached = any(isinstance(event, ev.TrainerAttached) for event in events)
    back = any(isinstance(event, ev.RollbackCompleted) for event in events)
    out: list[fx.Effect] = []
    for effect in effects:
        if isinstance(effect, fx.RefreshEngine):
            effect = _with_cache_policy(state.settings, effect, attached, back)
        elif not closed and (isinstance(effect, fx.RunStep) or (isinstance(effect, fx.Restore) and effect.weights)):
            effect = _fence(state, state.settings, effect, now_ns)
        out.append(effect)
    window_ended = any(isinstance(event, ev.WindowClosed) for event in events)
    if window_ended and state.settings.cache != "keep" and not _turns(state.settings, state.version):
        out.append(fx.RefreshEngine(state.version, state.settings.cache))
    return events, out


def _fence_closed(state: State, events: Sequence[ev.Event]) -> bool:
    """May the trainer write now: no fence is wanted, it is closed, or it was for as long as it may be?"""
    assert state.settings is not None
    if state.settings.publish != "fenced" or state.engine.phase != "ready" or state.engine_paused:
        return True
    anew = any(isinstance(event, ev.StepStarted | ev.TrainerAttached) for event in events)
    return (state.fence_expired and not anew) or any(isinstance(event, ev.EnginePaused) for event in events)


def fence_pending(state: State) -> bool:
    """Does a step that has begun still wait for its pause, so that the trainer does not know of it?"""
    return state.running is not None and state.settings is not None and not _fence_closed(state, ())


def _fence(state: State, settings: ev.Settings, write: fx.RunStep | fx.Restore, now_ns: int) -> fx.PauseEngine:
    """A step waits until requests have run for as long as they waited for the one before; those that run keep what they have
    computed, or they might do nothing but compute it again. With a restore or a replay the weights jump: nothing is kept."""
    if isinstance(write, fx.RunStep) and not write.replay:
        wait_s = max(0, state.serve_until_ns - now_ns) / SECOND_NS
        return fx.PauseEngine(write, state.trainer.pid, False, settings.fence_max_s, wait_s=wait_s)
    return fx.PauseEngine(write, state.trainer.pid, settings.cache != "keep", settings.fence_max_s)


def _step_of(state: State, write: fx.RunStep | fx.Restore) -> int:
    return write.step if isinstance(write, fx.RunStep) else state.version


def _turns(settings: ev.Settings, version: int) -> bool:
    """Are cached prefixes of older weights given up with this version?"""
    return version % settings.cache_every == 0


def _with_cache_policy(settings: ev.Settings, refresh: fx.RefreshEngine, attached: bool, back: bool) -> fx.RefreshEngine:
    if back and settings.cache == "keep":  # what was taken back is not to be heard of again, also by those who keep prefixes
        return fx.RefreshEngine(refresh.version, "reset")
    due = attached or _turns(settings, refresh.version)
    return fx.RefreshEngine(refresh.version, settings.cache if due else "keep")


def on_engine_paused(state: State, input_: inp.EnginePaused, now_ns: int) -> Outcome:
    """The engine is idle: write. Where it could not be paused, try again; then training halts rather than write unfenced."""
    asked = input_.asked
    wanted = state.trainer.pid == asked.trainer and not state.halted
    if input_.gone and state.stopping:  # the last step is waited for, and nobody is served any more
        return [], [asked.then] if wanted else []
    if state.engine.phase != "ready":
        return [], []
    if not input_.error:
        paused = ev.EnginePaused(step=_step_of(state, asked.then), seconds=input_.seconds)
        return [paused], [asked.then] if wanted else []
    if not wanted:
        return [], []
    if asked.attempt < PAUSE_ATTEMPTS_MAX:
        return [], [msgspec.structs.replace(asked, attempt=asked.attempt + 1, wait_s=backoff_s(asked.attempt))]
    halted = ev.TrainingHalted(
        reason=f"the engine could not be paused for a fenced step: {input_.error}",
        hint='see the engine\'s log, then `apollod ctl resume`; or set [trainer] publish = "hogwild"',
    )
    return [halted], [fx.ResumeEngine()]


def on_engine_resumed(state: State, input_: inp.EngineResumed, now_ns: int) -> Outcome:
    """Recorded once, however often it was asked for."""
    if not state.engine_paused:
        return [], []
    return [ev.EngineResumed(seconds=input_.seconds, expired=input_.expired, active=input_.active)], []


def open_fence(state: State) -> list[fx.Effect]:
    """Resume an engine that waits for no write any more. Asked for until it is reported."""
    return [fx.ResumeEngine()] if state.engine_paused and not _write_due(state) else []


def _write_due(state: State) -> bool:
    """Does the trainer write, or are weights torn or old and about to be restored? After a trainer's death the pause is
    held for its successor, within the longest pause."""
    if state.halted:
        return False
    if state.trainer.phase == "ready":
        return state.running is not None
    return not (state.trainer.given_up or state.stopping)
