"""Publishing: fences around the trainer's writes, and stale cached prefixes. Decisions, folds and status.

Writes of the trainer are decided elsewhere (`RunStep`, `Restore`); here every decision passes through `publish`, which
puts a pause before a write if the configuration wants it. A due write causes the pause; the state causes the resume
(`repeat`: no write is under way or due), so that no end of a write can miss it. The engine itself ends a pause that
lasts too long or whose supervisor is gone.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.children import NO_ENGINE, EngineExited, TrainerAttached
from apollod.core.facts.daemon import DaemonStarted
from apollod.core.facts.publishing import EnginePaused, EngineResumed, PublishingState, WeightsSent
from apollod.core.facts.training import StepStarted
from apollod.core.facts.updates import OBJECTIVE
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules import alignment
from apollod.core.rules.alignment import Alignment
from apollod.core.schedules import SECOND_NS, backoff_s, left_s
from apollod.core.settings import TrainerSettings
from apollod.core.state import State

# --- fence -----------------------------------------------------------------------------------------------------------
# Determines whether a write of the trainer is fenced.


def fence_closed(state: State, events: Sequence[ev.Event]) -> bool:
    """True if the trainer may write now: no fence is wanted, it is closed, or it expired. `events`: of the present
    decision, not folded yet."""
    settings, publishing = state.daemon.settings, state.publishing
    engine = state.children.engine_facts
    sends = engine is not None and engine.needs_pause  # what is being sent may not be written meanwhile
    if settings is None or not (sends or settings.trainer.publish == "fenced" or _updates(state, events)):
        return True
    if state.children.engine.phase != "ready" or publishing.engine_paused:
        return True
    anew = any(isinstance(event, ev.StepStarted | ev.TrainerAttached) for event in events)
    if publishing.fence_expired and not anew:
        return True
    return any(isinstance(event, ev.EnginePaused) for event in events)


def _updates(state: State, events: Sequence[ev.Event]) -> bool:
    """True if the next write is an outside trainer's, which always is fenced: all tensors change at once."""
    running = state.training.running
    begun = next((event for event in events if isinstance(event, ev.StepStarted)), running.begun if running else None)
    return begun is not None and begun.objective == OBJECTIVE


def fence_pending(state: State) -> bool:
    """True if a step that has begun still waits for its pause, and is unknown to the trainer."""
    return state.training.running is not None and not fence_closed(state, ())


# --- folds of events into the state ----------------------------------------------------------------------------------


def _daemon_started(own: PublishingState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.engine_paused, own.sent = False, {}


def _engine_exited(own: PublishingState, state: State, e: EngineExited, at_ns: int) -> None:
    own.engine_paused, own.sent = False, {}


def _trainer_attached(own: PublishingState, state: State, e: TrainerAttached, at_ns: int) -> None:
    own.fence_expired = False


def _step_started(own: PublishingState, state: State, e: StepStarted, at_ns: int) -> None:
    own.fence_expired = False


def _engine_paused(own: PublishingState, state: State, e: EnginePaused, at_ns: int) -> None:
    own.engine_paused = True


def _engine_resumed(own: PublishingState, state: State, e: EngineResumed, at_ns: int) -> None:
    own.engine_paused, own.fence_expired = False, e.expired
    own.serve_s = e.seconds if e.active else 0.0
    own.serve_until_ns = at_ns + int(own.serve_s * SECOND_NS)


def _weights_sent(own: PublishingState, state: State, e: WeightsSent, at_ns: int) -> None:
    own.sent[e.receiver] = e


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    EngineExited: _engine_exited,
    TrainerAttached: _trainer_attached,
    StepStarted: _step_started,
    EnginePaused: _engine_paused,
    EngineResumed: _engine_resumed,
    WeightsSent: _weights_sent,
}


# --- decisions -------------------------------------------------------------------------------------------------------

PAUSE_ATTEMPTS_MAX = 3


def publish(state: State, outcome: Outcome, now_ns: int) -> Outcome:
    """Add fences before writes to a decision, and the prefix-cache policy to its refreshes."""
    if state.daemon.settings is None:
        return outcome
    settings = state.daemon.settings.trainer
    closed = fence_closed(state, outcome.events)
    running = state.training.running
    back = outcome.find(ev.RollbackCompleted) is not None or (
        outcome.find(ev.StepCompleted) is not None and running is not None and running.begun.objective == OBJECTIVE
    )
    effects: list[fx.Effect] = []
    for effect in outcome.effects:
        if isinstance(effect, fx.RefreshEngine):
            # prefixes of weights that were taken back, or written anew, are dropped even with "keep"
            drops = back and settings.cache == "keep"
            effect = fx.RefreshEngine(effect.version, "reset" if drops else settings.cache)
        elif not closed and (isinstance(effect, fx.RunStep) or (isinstance(effect, fx.Restore) and effect.weights)):
            effect = _fenced(state, settings, effect, now_ns)
        effects.append(effect)
    return Outcome(outcome.events, effects)


def repeat(state: State, now_ns: int) -> list[fx.Effect]:
    """Resume an engine that no longer waits for a write. Repeated until it is reported."""
    return [fx.ResumeEngine()] if state.publishing.engine_paused and not _write_due(state) else []


def _fenced(state: State, settings: TrainerSettings, write: fx.RunStep | fx.Restore, now_ns: int) -> fx.PauseEngine:
    """Put a pause before a write. A step waits until requests have run for as long as they waited for the one before;
    running requests keep their computed prefixes, else they might never progress. With a restore or a replay the
    weights jump: nothing is kept."""
    trainer = state.children.trainer.pid
    if isinstance(write, fx.RunStep) and not write.replay and write.objective != OBJECTIVE:
        wait_s = left_s(now_ns, state.publishing.serve_until_ns, state.publishing.serve_s)
        return fx.PauseEngine(write, trainer, False, settings.fence_max_s, wait_s=wait_s)
    clear = settings.cache != "keep" or (isinstance(write, fx.RunStep) and write.objective == OBJECTIVE)
    return fx.PauseEngine(write, trainer, clear, settings.fence_max_s)


def _on_paused(state: State, input_: inp.EnginePauseReport, now_ns: int) -> Outcome:
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


def _on_resumed(state: State, input_: inp.EngineResumeReport, now_ns: int) -> Outcome:
    """Record the resume once, even if it was requested several times."""
    if not state.publishing.engine_paused:
        return nothing()
    return Outcome([composed(ev.EngineResumed, input_)], [])


def _on_sent(state: State, input_: inp.WeightsSentReport, now_ns: int) -> Outcome:
    return Outcome([composed(WeightsSent, input_)], [])


def _write_due(state: State) -> bool:
    """True if the trainer writes, or torn or old weights are about to be restored. After a trainer's death the pause is
    held for its successor, within the longest pause."""
    trainer = state.children.trainer
    if state.daemon.halted:
        return False
    if trainer.phase == "ready":
        return state.training.running is not None
    return not (trainer.given_up or state.daemon.stopping)


HANDLERS: Handlers = {
    inp.EnginePauseReport: _on_paused,
    inp.EngineResumeReport: _on_resumed,
    inp.WeightsSentReport: _on_sent,
}


# --- status ----------------------------------------------------------------------------------------------------------


class ReceiverStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An engine elsewhere, and the version that it was sent last; `error`: why it does not have it. `carried`: share of
    the change that an adapter carries, 1 for whole weights; `left_out`: changed tensors that are not in it."""

    url: str
    step: int
    seconds: float
    held_s: float
    error: str
    carried: float = 1.0
    left_out: int = 0


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The trainer's copy of the weights, the only one unless engines are elsewhere. The counts are of tensors
    (`wire.manifest` defines live, cast ...)."""

    bridge: str
    """how trainer and engine share them; empty until the engine is ready"""
    parameters: int
    live: int
    cast: int
    rederive: int
    frozen: int
    trained: int = 0
    bytes: int
    elements: int = 0
    """number of elements in trained tensors"""
    fingerprint: str
    """16 hex digits (DESIGN section 8); empty until a trainer saw the weights"""
    base_fingerprint: str = ""
    """fingerprint of the untrained weights"""
    version: int = 0
    """number of the last completed step that was not taken back"""
    publish: str = ""
    """`hogwild` or `fenced`; empty before the first start"""
    cache: str = ""
    """treatment of cached prefixes after a step; empty before the first start"""
    paused: bool = False
    """requests wait for a fenced write"""
    alignment: Alignment | None = None
    receivers: list[ReceiverStatus] = []
    """engines elsewhere"""
    served: int | UnsetType | None = UNSET
    """version in use by the engine; null without an engine"""


def status(state: State, served: int | UnsetType | None) -> Weights:
    """The weights as engine and trainer reported them; `served`: version in use by the engine."""
    bound, settings = state.children.bound, state.daemon.settings
    return composed(
        Weights, state.children.engine_facts or NO_ENGINE, trained=bound.parameters if bound else 0,
        elements=bound.elements if bound else 0,
        fingerprint=state.training.fingerprint, base_fingerprint=state.recovery.base_fingerprint,
        version=state.training.version, publish=settings.trainer.publish if settings else "",
        cache=settings.trainer.cache if settings else "", paused=state.publishing.engine_paused,
        alignment=alignment.status(state), served=served,
        receivers=[composed(ReceiverStatus, one, url=url) for url, one in state.publishing.sent.items()],
    )  # fmt: skip
