"""Inputs: a bootstrap is requested, its source was read, it is to be stopped."""

from apollod.core.bootstrap.events import BootstrapRequested, Unread
from apollod.core.kernel.input import Input


class BootstrapWanted(Input, frozen=True):
    """Begin a bootstrap, or resume a stopped one."""

    request: BootstrapRequested


class BootstrapRan(Input, frozen=True):
    """The reader of this request has finished. `refused`: why the source itself cannot be read."""

    request: BootstrapRequested
    files: int = 0
    bytes: int = 0
    unread: tuple[Unread, ...] = ()
    refused: str = ""


class BootstrapStopWanted(Input, frozen=True):
    """Stop reading."""

    by: str
