"""The part of `status` about checkpoints."""

import msgspec

from apollod.core.checkpoints.due import due_ns
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest committed checkpoint (null: none), and totals of all."""

    step: int | None
    at: float | None
    """Unix time of its commit"""
    fingerprint: str | None
    path: str | None = None
    steps_since: int = 0
    """steps that a crash would have run again"""
    kept: int = 0
    """checkpoints available for a rollback"""
    bytes: int = 0
    """total size"""
    due_in_s: float | None = None
    """seconds until the next automatic one; 0: as soon as `activities` allows it; null: nothing is unsaved"""


def status(state: State, now_ns: int) -> Checkpoint:
    """The newest and the next checkpoint, and totals of all."""
    own, due = state.checkpoints, due_ns(state, now_ns)
    newest = own.newest
    return Checkpoint(
        step=newest.step if newest else None, at=newest.at_ns / SECOND_NS if newest else None,
        fingerprint=newest.fingerprint if newest else None, path=newest.path if newest else None,
        steps_since=len(state.recovery.since), kept=len(own.committed), bytes=sum(c.bytes for c in own.committed),
        due_in_s=None if due is None else round(max(0, due - now_ns) / SECOND_NS, 3),
    )  # fmt: skip
