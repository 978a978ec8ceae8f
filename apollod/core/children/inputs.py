"""Inputs: engine or trainer started, is up, exited or refused its work."""

from apollod.core.children.events import EngineReady
from apollod.core.kernel.input import Input


class EngineStarted(Input, frozen=True):
    """The engine process was spawned."""

    pid: int
    model_dir: str


class TrainerStarted(Input, frozen=True):
    """The trainer process was spawned."""

    pid: int


class EngineUp(Input, frozen=True):
    """The verified manifest is here and /health answers."""

    ready: EngineReady


class ChildExited(Input, frozen=True):
    """A child ended, or was not started at all (`refused`: for a reason the user can act on)."""

    role: str
    """"engine" or "trainer" """
    pid: int
    code: int | None
    reason: str
    refused: bool = False


class Refused(Input, frozen=True, tag="refused"):
    """The trainer cannot do what was asked, and gives the reason; it stays up."""

    what: str
    reason: str
    hint: str = ""
