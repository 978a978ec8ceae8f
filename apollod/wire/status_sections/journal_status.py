"""The journal, and how fast the state directory grows."""

import msgspec
from msgspec import UNSET, UnsetType


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """The file that holds every event."""

    seq: int
    """number of the newest event"""
    bytes: int
    head_hash: str
    """of the newest event, 64 hex digits; empty before the first"""
    path: str = ""
    verified: int | UnsetType = UNSET
    """event up to which the chain of hashes was read back in this life"""
    free_bytes: int | UnsetType = UNSET
    """on its disk"""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of the state directory, by the last day of events."""

    journal_bytes_per_day: int
    history_bytes_per_day: int
    """checkpoints written less checkpoints removed"""
    days_left: float | None
    """until the disk of the state directory is full; null: nothing grows"""
