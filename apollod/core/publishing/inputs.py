"""Inputs: the engine paused or resumed its requests."""

from apollod.core.kernel.input import Input
from apollod.core.publishing.effects import PauseEngine


class EnginePaused(Input, frozen=True):
    """The engine is idle, or could not be paused (`error`): it refused, or is `gone`. `asked`: the answered effect."""

    asked: PauseEngine
    seconds: float
    error: str = ""
    gone: bool = False


class EngineResumed(Input, frozen=True, tag="resumed"):
    """Requests go on, by request or because the longest pause was over (`expired`). `active`: number of requests."""

    seconds: float
    expired: bool = False
    active: int = 0
