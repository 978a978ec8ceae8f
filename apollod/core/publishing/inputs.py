"""Inputs: the engine paused or resumed its requests."""

from apollod.core.kernel.input import Input
from apollod.core.publishing.effects import PauseEngine


class EnginePaused(Input, frozen=True):
    """The engine is idle, or could not be paused (`error`): it answered so, or is `gone`. `asked`: the effect that
    this answers."""

    asked: PauseEngine
    seconds: float
    error: str = ""
    gone: bool = False


class EngineResumed(Input, frozen=True):
    """Requests go on; asked for, or because the longest pause was over (`expired`). `active`: how many there are."""

    seconds: float
    expired: bool = False
    active: int = 0
