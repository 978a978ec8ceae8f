"""Time, as the one place that reads a clock."""

import time


def now_ns() -> int:
    """Nanoseconds since the epoch, for event times and schedules."""
    return time.time_ns()
