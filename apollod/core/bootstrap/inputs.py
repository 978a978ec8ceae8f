"""Inputs: a bootstrap is requested, its source was read, it is to be stopped."""

from apollod.core.bootstrap.events import BootstrapRequested, Unread
from apollod.core.kernel.input import Input


class BootstrapWanted(Input, frozen=True):
    """Begin, or go on where the same one was stopped."""

    request: BootstrapRequested


class BootstrapRan(Input, frozen=True):
    """The reader of this request is through. `refused`: the source itself cannot be read, and why."""

    request: BootstrapRequested
    files: int = 0
    bytes: int = 0
    unread: tuple[Unread, ...] = ()
    refused: str = ""


class BootstrapStopWanted(Input, frozen=True):
    """Read no more of it."""

    by: str
