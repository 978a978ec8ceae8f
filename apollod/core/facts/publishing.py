"""Publishing: fences around the trainer's writes, and stale cached prefixes. Events, inputs, effects and state."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.recovery import Restore
from apollod.core.facts.training import RunStep
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input

# --- events ----------------------------------------------------------------------------------------------------------


class EnginePaused(Event, frozen=True):
    """Requests wait (vLLM's pause, mode keep) while the trainer writes. `step`: the one written, or the version
    restored. `seconds`: time until the engine was idle."""

    kind: ClassVar[str] = "engine.paused"
    step: int
    seconds: float


class EngineResumed(Event, frozen=True):
    """Requests go on. `seconds`: their wait; `expired`: `fence_max_s` ended before the write did; `active`: number of
    requests."""

    kind: ClassVar[str] = "engine.resumed"
    seconds: float
    expired: bool = False
    active: int = 0


class Attempt(msgspec.Struct, frozen=True):
    """Weights that an engine elsewhere (`receiver`: its URL) was sent, those of `step`, or was not (`error`).

    `fingerprint` and `bytes`: of what was sent; `held_s`: seconds for which its generation was held, of `seconds`.
    An adapter (bridge `lora`) approximates the weights with this fingerprint: of the change since the engine's own
    weights it carries the share `carried`, which is 1 minus the Frobenius norm of what it lacks over that of the
    change, and it has no part of `left_out` changed tensors.
    """

    step: int
    receiver: str
    bridge: str
    fingerprint: str
    bytes: int
    seconds: float
    held_s: float
    error: str = ""
    carried: float = 1.0
    left_out: int = 0


class WeightsSent(Attempt, Event, frozen=True):
    """An engine elsewhere has the weights of a step, or why it does not have them."""

    kind: ClassVar[str] = "weights.sent"


# --- effects ---------------------------------------------------------------------------------------------------------


class RefreshEngine(Effect, frozen=True, tag="refresh"):
    """Tell the engine that its weights are now version `version`. Only the newest one counts.

    `forget`: treatment of cached prefixes of older weights: dropped, no longer found, or kept.
    """

    distinguished_by: ClassVar[tuple[str, ...]] = ("version",)
    version: int
    forget: Literal["reset", "salt", "keep"] = "reset"


class PauseEngine(Effect, frozen=True):
    """Make requests wait, for at most `at_most_s` seconds, so that trainer `trainer` (a pid) can do `then`.

    `clear`: drop the prefix cache and what running requests have computed; they do it again with the new weights. A
    failed attempt is made again `wait_s` later.
    """

    then: RunStep | Restore
    trainer: int
    clear: bool
    at_most_s: float
    attempt: int = 1
    wait_s: float = 0.0

    def key(self) -> str:
        """Like other keys, with the key of the pending write."""
        return f"PauseEngine trainer={self.trainer} attempt={self.attempt} then {self.then.key()}"


class ResumeEngine(Effect, frozen=True, tag="resume-engine"):
    """End the wait of requests."""


# --- inputs ----------------------------------------------------------------------------------------------------------


class EnginePauseReport(Input, frozen=True):
    """The engine is idle, or could not be paused (`error`): it refused, or is `gone`. `asked`: the answered effect."""

    asked: PauseEngine
    seconds: float
    error: str = ""
    gone: bool = False


class EngineResumeReport(Input, frozen=True, tag="resumed"):
    """Requests go on, by request or because the longest pause was over (`expired`). `active`: number of requests."""

    seconds: float
    expired: bool = False
    active: int = 0


class WeightsSentReport(Attempt, Input, frozen=True, tag="weights-sent"):
    """The gateway tried to send weights to an engine elsewhere."""


# --- state -----------------------------------------------------------------------------------------------------------


class PublishingState(msgspec.Struct):
    """Fences around writes."""

    engine_paused: bool = False
    """requests wait for a fenced write"""
    serve_until_ns: int = 0
    """no fenced step before this time: requests run for as long as they waited"""
    serve_s: float = 0.0
    """length of the wait that ends then"""
    sent: dict[str, WeightsSent] = {}
    """the last attempt by the URL of each engine elsewhere, in this life of our own"""
    fence_expired: bool = False
    """the write went on after the longest pause; writes until the next step are not fenced"""
