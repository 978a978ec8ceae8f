"""Reads the clock, as the only module that does, and formats times."""

import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_ns() -> int:
    """Nanoseconds since the epoch, for event times and schedules."""
    return time.time_ns()


def iso(at_ns: int) -> str:
    """Format a time as the views of the journal do, to the microsecond."""
    at = EPOCH + timedelta(microseconds=at_ns // 1000)
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"  # strftime has no zeros before a short year
