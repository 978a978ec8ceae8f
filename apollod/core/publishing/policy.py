"""Publishes the trainer's writes to the engine: with or without a fence, and dropping or keeping cached prefixes.

Writes of the trainer are decided elsewhere (`RunStep`, `Restore`); here every decision passes through `publish`, which
puts a pause before a write if the configuration wants it. A due write causes the pause; the state causes the resume
(`open_fence`: no write is under way or due), so that no end of a write can miss it. The engine itself ends a pause that
lasts too long or whose supervisor is gone.
"""

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.publishing.fence import fence_closed
from apollod.core.schedules import backoff_s, left_s
from apollod.core.settings import TrainerSettings
from apollod.core.state import State

PAUSE_ATTEMPTS_MAX = 3


def publish(state: State, outcome: Outcome, now_ns: int) -> Outcome:
    """Add fences before writes to a decision, and the prefix-cache policy to its refreshes."""
    if state.daemon.settings is None:
        return outcome
    settings = state.daemon.settings.trainer
    closed = fence_closed(state, outcome.events)
    back = outcome.find(ev.RollbackCompleted) is not None
    effects: list[fx.Effect] = []
    for effect in outcome.effects:
        if isinstance(effect, fx.RefreshEngine):
            # prefixes of weights that were taken back are dropped even with "keep"
            drops = back and settings.cache == "keep"
            effect = fx.RefreshEngine(effect.version, "reset" if drops else settings.cache)
        elif not closed and (isinstance(effect, fx.RunStep) or (isinstance(effect, fx.Restore) and effect.weights)):
            effect = _fenced(state, settings, effect, now_ns)
        effects.append(effect)
    return Outcome(outcome.events, effects)


def open_fence(state: State) -> list[fx.Effect]:
    """Resume an engine that no longer waits for a write. Repeated until it is reported."""
    return [fx.ResumeEngine()] if state.publishing.engine_paused and not _write_due(state) else []


def _fenced(state: State, settings: TrainerSettings, write: fx.RunStep | fx.Restore, now_ns: int) -> fx.PauseEngine:
    """Put a pause before a write. A step waits until requests have run for as long as they waited for the one before;
    running requests keep their computed prefixes, else they might never progress. With a restore or a replay the
    weights jump: nothing is kept."""
    trainer = state.children.trainer.pid
    if isinstance(write, fx.RunStep) and not write.replay:
        wait_s = left_s(now_ns, state.publishing.serve_until_ns, state.publishing.serve_s)
        return fx.PauseEngine(write, trainer, False, settings.fence_max_s, wait_s=wait_s)
    return fx.PauseEngine(write, trainer, settings.cache != "keep", settings.fence_max_s)


def _on_paused(state: State, input_: inp.EnginePaused, now_ns: int) -> Outcome:
    """Write, now that the engine is idle. If it could not be paused, try again, and halt training in the end: a step is
    never written unfenced."""
    asked = input_.asked
    wanted = state.children.trainer.pid == asked.trainer and not state.daemon.halted
    if input_.gone and state.daemon.stopping:  # the last step is waited for, and serving has ended
        return Outcome([], [asked.then] if wanted else [])
    if state.children.engine.phase != "ready":
        return nothing()
    if not input_.error:
        step = asked.then.step if isinstance(asked.then, fx.RunStep) else state.training.version
        return Outcome([ev.EnginePaused(step=step, seconds=input_.seconds)], [asked.then] if wanted else [])
    if not wanted:
        return nothing()
    if asked.attempt < PAUSE_ATTEMPTS_MAX:
        again = msgspec.structs.replace(asked, attempt=asked.attempt + 1, wait_s=backoff_s(asked.attempt))
        return Outcome([], [again])
    halted = ev.TrainingHalted(
        reason=f"the engine could not be paused for a fenced step: {input_.error}",
        hint='see the engine\'s log, then `apollod ctl resume`; or set [trainer] publish = "hogwild"',
    )
    return Outcome([halted], [fx.ResumeEngine()])


def _on_resumed(state: State, input_: inp.EngineResumed, now_ns: int) -> Outcome:
    """Record the resume once, even if it was requested several times."""
    if not state.publishing.engine_paused:
        return nothing()
    return Outcome([ev.EngineResumed(seconds=input_.seconds, expired=input_.expired, active=input_.active)], [])


def _write_due(state: State) -> bool:
    """True if the trainer writes, or torn or old weights are about to be restored. After a trainer's death the pause is
    held for its successor, within the longest pause."""
    trainer = state.children.trainer
    if state.daemon.halted:
        return False
    if trainer.phase == "ready":
        return state.training.running is not None
    return not (trainer.given_up or state.daemon.stopping)


HANDLERS: Handlers = {inp.EnginePaused: _on_paused, inp.EngineResumed: _on_resumed}
