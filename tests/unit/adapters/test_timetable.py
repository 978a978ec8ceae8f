"""Hours of the day as moments, over the days on which clocks are changed."""

import time
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.adapters.system.timetable import hours_of, next_night, zone_of

BERLIN = zone_of("Europe/Berlin")


def night(hours: str, now: str, zone: str = "Europe/Berlin") -> tuple[str, str]:
    """Opening and closing in local time, with offset."""
    where = zone_of(zone)
    at = datetime.fromisoformat(now).replace(tzinfo=where)
    found = next_night(hours_of(hours), where, int(at.timestamp()) * 10**9)
    told = [datetime.fromtimestamp(ns / 1e9, where).isoformat(timespec="minutes") for ns in found]
    return told[0], told[1]


@pytest.mark.parametrize(
    ("hours", "now", "opens", "closes"),
    [
        ("02:00-05:00", "2026-11-22T17:00", "2026-11-23T02:00+01:00", "2026-11-23T05:00+01:00"),
        ("02:00-05:00", "2026-11-22T02:00", "2026-11-22T02:00+01:00", "2026-11-22T05:00+01:00"),
        ("02:00-05:00", "2026-11-22T04:59", "2026-11-22T02:00+01:00", "2026-11-22T05:00+01:00"),
        ("02:00-05:00", "2026-11-22T05:00", "2026-11-23T02:00+01:00", "2026-11-23T05:00+01:00"),
        ("22:30-06:00", "2026-11-22T03:00", "2026-11-21T22:30+01:00", "2026-11-22T06:00+01:00"),
        # clocks are put forward: 02:00 to 03:00 does not exist
        ("02:00-05:00", "2026-03-28T12:00", "2026-03-29T03:00+02:00", "2026-03-29T05:00+02:00"),
        ("02:30-03:30", "2026-03-28T12:00", "2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00"),
        ("02:10-02:50", "2026-03-28T12:00", "2026-03-30T02:10+02:00", "2026-03-30T02:50+02:00"),
        # and back: it comes twice
        ("02:00-05:00", "2026-10-24T12:00", "2026-10-25T02:00+02:00", "2026-10-25T05:00+01:00"),
        ("02:15-02:45", "2026-10-24T12:00", "2026-10-25T02:15+02:00", "2026-10-25T02:45+01:00"),
    ],
)
def test_the_hours_that_it_is_in_or_the_next_ones(hours: str, now: str, opens: str, closes: str) -> None:
    assert night(hours, now) == (opens, closes)


ZONES = ["Europe/Berlin", "UTC", "Australia/Lord_Howe"]
TIMES = st.builds("{:02d}:{:02d}".format, st.integers(0, 23), st.integers(0, 59))


@given(
    TIMES,
    TIMES,
    st.integers(1_700_000_000, 1_900_000_000),
    st.sampled_from(["Europe/Berlin", "UTC", "Australia/Lord_Howe"]),
)
def test_nights_lie_ahead_have_a_length_and_follow_each_other(opens: str, closes: str, now_s: int, zone: str) -> None:
    if opens == closes:
        return
    hours, where, now_ns = hours_of(f"{opens}-{closes}"), zone_of(zone), now_s * 10**9
    first = next_night(hours, where, now_ns)
    assert first.opens_ns < first.closes_ns and now_ns < first.closes_ns
    assert first.closes_ns - now_ns <= timedelta(days=3).total_seconds() * 10**9
    inside = max(now_ns, first.opens_ns)
    assert next_night(hours, where, inside) == first
    following = next_night(hours, where, first.closes_ns)
    assert following.opens_ns >= first.closes_ns


def test_without_a_name_the_zone_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        spring = int(datetime(2026, 3, 28, 12, tzinfo=BERLIN).timestamp()) * 10**9
        for hours in ("02:00-05:00", "02:30-03:30", "22:00-01:00"):
            assert next_night(hours_of(hours), None, spring) == next_night(hours_of(hours), BERLIN, spring)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "2", "02:00", "02:00-25:00", "night", "02:00-05:00-06:00", "03:00-03:00"])
def test_what_are_no_hours(text: str) -> None:
    with pytest.raises(ValueError, match=r"02:00-05:00|has no length"):
        hours_of(text)


@pytest.mark.parametrize("name", ["Nowhere", "../../etc/passwd", "Europe/Berlin\x00"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        zone_of(name)
