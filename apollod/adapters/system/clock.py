"""Time, as the one place that reads a clock; and as text."""

import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_ns() -> int:
    """Nanoseconds since the epoch, for event times and schedules."""
    return time.time_ns()


def iso(at_ns: int) -> str:
    """A time as the views of the journal show it, to the microsecond."""
    at = EPOCH + timedelta(microseconds=at_ns // 1000)
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"  # strftime has no zeros before a short year
