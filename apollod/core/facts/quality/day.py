"""Counts the alarms of a day, and decides when they are too many. Pure."""

from collections.abc import Sequence

from apollod.core.schedules import DAY_NS, SECOND_NS, is_recent

ALARMS_MAX = 3
"""alarms within DAY_S after which nothing is learned until a person resumes"""
DAY_S = DAY_NS / SECOND_NS


def with_alarm(alarms_ns: Sequence[int], at_ns: int) -> tuple[int, ...]:
    """The alarms of the last 24 hours, with one more now. Later times date from before the clock was put back and do
    not count (`schedules.is_recent`)."""
    return (*(one for one in alarms_ns if is_recent(at_ns, one, DAY_S)), at_ns)


def stops(alarms_ns: Sequence[int]) -> bool:
    """True if these alarms stop training. Independent of the clock: training does not go on because a day is over, only
    after a person resumes, which empties the list."""
    return len(alarms_ns) >= ALARMS_MAX
