"""Inputs: a person decides about examples."""

from typing import Literal

import msgspec

from apollod.core.intake.inputs import Line
from apollod.core.kernel.input import Input

Choice = Literal["approve", "decline", "hold"]


class Decision(msgspec.Struct, frozen=True):
    """A decision about an example. `only_in`: nothing, if it is in another state (`core.example_state`) than this one
    by now, because somebody else decided meanwhile."""

    example: str
    choice: Choice
    reason: str = ""
    only_in: str = ""


class DecisionsGiven(Input, frozen=True):
    """A person decided. What cannot be done any more gives no event. `together`: all of them or none."""

    decisions: tuple[Decision, ...]
    by: str
    together: bool = False


class EditGiven(Input, frozen=True):
    """A person wrote what is to be learned instead of `example`: a `line` with a record. `only_in`: as for a
    `Decision`; `known`: the journal holds that record already."""

    example: str
    line: Line
    by: str
    only_in: str = ""
    known: bool = False
