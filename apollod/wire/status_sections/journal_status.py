"""The parts of `status` about the journal and the growth of the state directory."""

import msgspec
from msgspec import UNSET, UnsetType


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """The file that holds every event."""

    seq: int
    """number of the newest event"""
    bytes: int
    head_hash: str
    """hash of the newest event, 64 hex digits; empty before the first"""
    path: str = ""
    verified: int | UnsetType = UNSET
    """event up to which the hash chain was verified in this life"""
    free_bytes: int | UnsetType = UNSET
    """free space on its disk"""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of the state directory, from the events of the last day."""

    journal_bytes_per_day: int
    history_bytes_per_day: int
    """checkpoints written minus checkpoints removed"""
    days_left: float | None
    """days until the disk of the state directory is full; null: no growth"""
