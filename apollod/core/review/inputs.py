"""Inputs: a person decides about examples."""

from typing import Literal

import msgspec

from apollod.core.intake.inputs import Line
from apollod.core.kernel.input import Input

Choice = Literal["approve", "decline", "hold"]


class Decision(msgspec.Struct, frozen=True):
    """A decision about an example. `only_in`: apply only if the example is still in this state (`core.example_state`);
    empty: in any state."""

    example: str
    choice: Choice
    reason: str = ""
    only_in: str = ""


class DecisionsGiven(Input, frozen=True):
    """A person decided. Decisions that come too late give no event. `together`: all of them or none."""

    decisions: tuple[Decision, ...]
    by: str
    together: bool = False


class EditGiven(Input, frozen=True):
    """A person wrote a replacement for `example`: a `line` with a record. `only_in`: as for a `Decision`; `known`: the
    journal holds that record already."""

    example: str
    line: Line
    by: str
    only_in: str = ""
    known: bool = False
