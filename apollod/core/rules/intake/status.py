"""The parts of `status` about the queue and its sources."""

import msgspec

from apollod.core.kernel.composing import composed
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of examples, over the life of the journal."""

    pending: int
    """accepted and not learned yet, including the running step's"""
    held: int
    """waiting for a decision, or their step could not be run"""
    trained: int
    skipped: int = 0
    """their step wrote nothing"""
    undone: int = 0
    """their step was taken back"""
    withdrawn: int = 0
    """taken out of the queue"""
    declined: int = 0
    """decided against"""
    edited: int = 0
    """replaced by an edited version"""
    expired: int = 0
    """not decided in time"""
    forgetting: int = 0
    """learned, and being taken out of the weights"""
    unforgotten: int = 0
    """were to be forgotten, and could not be"""
    rejected: int
    """quarantined lines, and examples that cannot be learned"""
    duplicates: int
    """lines that repeat known ones"""
    accepted: int = 0


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A path of a source that cannot be read now."""

    reason: str
    hint: str
    """the fix"""
    mode: str
    """kind of place where it was found: `inbox`, `tail` (files of a watched directory) or `poll` (databases)"""
    since: float
    """Unix time at which it was found"""


def status(state: State) -> Queue:
    """Counts of examples by outcome, from all subjects that count some."""
    steps, forgetting = state.training.counts, state.forgetting
    now = forgetting.under_way
    return composed(
        Queue, steps, state.intake.counts, state.review.counts, pending=state.queued,
        held=len(state.review.held) + steps.held, undone=len(state.intake.undone),
        withdrawn=len(state.intake.withdrawn), forgetting=len(forgetting.wanted) + (len(now.wishes) if now else 0),
        unforgotten=len(forgetting.refused),
    )  # fmt: skip


def blocked(state: State) -> dict[str, Blocked]:
    """Unreadable places by path."""
    return {path: composed(Blocked, one, since=one.since_ns / SECOND_NS) for path, one in state.intake.blocked.items()}
