"""What can happen: somebody decides about examples."""

from typing import Literal

import msgspec

from apollod.core.intake.inputs import Line
from apollod.core.kernel.input import Input

Choice = Literal["approve", "decline", "hold"]


class Decision(msgspec.Struct, frozen=True):
    """What is to become of an example. `only_held`: nothing, if somebody else has decided meanwhile."""

    example: str
    choice: Choice
    reason: str = ""
    only_held: bool = False


class DecisionsGiven(Input, frozen=True):
    """A person decided. What cannot be done any more gives no event."""

    decisions: tuple[Decision, ...]
    by: str


class EditGiven(Input, frozen=True):
    """A person wrote what is to be learned instead of `example`: a `line` with a record. `known`: the journal holds
    that record already."""

    example: str
    line: Line
    by: str
    only_held: bool = False
    known: bool = False
