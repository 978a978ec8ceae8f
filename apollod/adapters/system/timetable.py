"""Converts hours of the day in a time zone to moments."""

from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apollod.core.schedules import SECOND_NS


class Hours(NamedTuple):
    """A range of hours of the day, which ends on the next day if its end is not later than its start."""

    opens: time_of_day
    closes: time_of_day


class Night(NamedTuple):
    """A range of time in nanoseconds since 1970."""

    opens_ns: int
    closes_ns: int


def hours_of(text: str) -> Hours:
    """Parse hours such as "02:00-05:00" or "22:30-06:00". Raises ValueError."""
    parts = text.split("-")
    try:
        opens, closes = (datetime.strptime(part.strip(), "%H:%M").time() for part in parts)
    except ValueError as error:
        raise ValueError(f'"{text}" are no hours of the day; write them like "02:00-05:00"') from error
    if opens == closes:
        raise ValueError(f'"{text}" has no length; leave nightly out to learn at any time')
    return Hours(opens, closes)


def zone_of(name: str) -> ZoneInfo | None:
    """Return a zone by its IANA name, such as Europe/Berlin; None, for an empty name, means the zone of this machine.
    Raises ValueError."""
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f'"{name}" is no time zone that this machine knows; write it like "Europe/Berlin"') from error


def next_night(hours: Hours, zone: ZoneInfo | None, now_ns: int) -> Night:
    """Return the current hours, or the next ones.

    Where clocks are put forward, hours that do not exist are left out; a night without any hour left is skipped. Where
    they are put back, a night has both of the hours that come twice.
    """
    today = datetime.fromtimestamp(now_ns / 1e9, UTC).astimezone(zone).date()
    for days in range(-1, 4):
        night = _night(hours, zone, today + timedelta(days))
        if night.closes_ns > max(now_ns, night.opens_ns):
            return night
    raise AssertionError(f"no night within three days of {today}")


def _night(hours: Hours, zone: ZoneInfo | None, day: date) -> Night:
    last = day if hours.closes > hours.opens else day + timedelta(1)
    return Night(_moment(day, hours.opens, zone, first=True), _moment(last, hours.closes, zone, first=False))


def _moment(day: date, time: time_of_day, zone: ZoneInfo | None, first: bool) -> int:
    """Moment of a local time: the first or last of a time that comes twice; for a time that does not exist, the moment
    at which clocks are put forward."""
    local = datetime.combine(day, time)
    either = [local.replace(fold=fold, tzinfo=zone) if zone else local.replace(fold=fold) for fold in (0, 1)]
    early, late = sorted(int(one.timestamp()) for one in either)
    if _local(early, zone) != local:  # PEP 495: the time is in a gap
        return _change(early, late, zone) * SECOND_NS
    return (early if first else late) * SECOND_NS


def _change(before: int, after: int, zone: ZoneInfo | None) -> int:
    """The moment between two at which the offset from UTC changes; seconds since 1970."""
    offset = _offset(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(middle, zone) == offset:
            before = middle
        else:
            after = middle
    return after


def _local(moment_s: int, zone: ZoneInfo | None) -> datetime:
    """Local clock time."""
    return datetime.fromtimestamp(moment_s, zone).replace(tzinfo=None, fold=0)


def _offset(moment_s: int, zone: ZoneInfo | None) -> timedelta | None:
    return datetime.fromtimestamp(moment_s, UTC).astimezone(zone).utcoffset()
