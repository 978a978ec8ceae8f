"""Facts: what requests see of a write."""

from typing import ClassVar

from apollod.core.kernel.event import Event


class EnginePaused(Event, frozen=True):
    """Requests wait (vLLM's pause, mode keep) while the trainer writes. `step`: the one written, or the version
    restored. `seconds`: until the engine was idle."""

    kind: ClassVar[str] = "engine.paused"
    step: int
    seconds: float


class EngineResumed(Event, frozen=True):
    """Requests go on. `seconds`: how long they waited; `expired`: `fence_max_s` was over before the write was;
    `active`: how many there were."""

    kind: ClassVar[str] = "engine.resumed"
    seconds: float
    expired: bool = False
    active: int = 0
