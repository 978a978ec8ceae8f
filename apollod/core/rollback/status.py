"""The parts of `status` about rollbacks and their reach in memory."""

import msgspec
from msgspec import UNSET, UnsetType

from apollod.core.kernel.composing import composed
from apollod.core.state import State
from apollod.core.training.inputs import Undoable


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """The requested rollback, or the one under way."""

    to: int
    from_: int = msgspec.field(name="from")
    state: str
    """`requested` or `started`"""


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that a rollback can undo at once, in memory."""

    steps: int | UnsetType | None = UNSET
    """number of last steps; a rollback further back reads a checkpoint and runs steps again. null without a trainer"""
    reason: str = ""
    """why none can ever be undone, such as too small a `[checkpoint] undo_bytes`"""
    bytes: int | None = None
    """host memory of the trainer for it; null without a trainer"""


def status(state: State) -> Rollback | None:
    """The rollback under way, else the requested one."""
    wanted, back = state.rollback.wanted, state.rollback.under_way
    if back is not None:
        return Rollback(to=back.to, from_=back.from_step, state="started")
    return Rollback(to=wanted.to, from_=state.training.version, state="requested") if wanted is not None else None


def undo(told: Undoable | None, given: int | None) -> Undo:
    """The trainer's last report, None before it was attached; `given`: host memory that it was given for it."""
    return Undo(steps=None) if told is None else composed(Undo, told, bytes=given)
