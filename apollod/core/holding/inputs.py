"""Inputs of holding: an anchor is frozen, or cannot be."""

from typing import Literal

import msgspec

from apollod.core.holding.events import Sort
from apollod.core.kernel.input import Input


class AnchorAnswered(Input, frozen=True):
    """Answers `FreezeAnchor`: see `AnchorFrozen`. `first`, `last`: first and last version of the weights during the
    call; -1: not known. `question`: key of the prompt's question, see `ExampleAccepted`."""

    wanted: str
    anchor: str
    record: msgspec.Raw
    teacher: str
    sort: Sort
    first: int = -1
    last: int = -1
    seconds: float = 0.0
    question: str = ""


class AnchorCallFailed(Input, frozen=True):
    """`FreezeAnchor` failed. `cause`: answer, this answer cannot be used; busy, the engine did not answer; unable, it
    cannot answer such questions."""

    wanted: str
    cause: Literal["answer", "busy", "unable"]
    reason: str
