"""Events: pauses of requests around a write."""

from typing import ClassVar

from apollod.core.kernel.event import Event


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
