"""Three alarms in a day stop training."""

from apollod.core.facts.quality.state import ALARMS_MAX, stops, with_alarm
from apollod.core.schedules import DAY_NS

HOUR_NS = DAY_NS // 24


def alarmed(*at_hours):
    alarms = ()
    for at in at_hours:
        alarms = with_alarm(alarms, int(at * HOUR_NS))
    return alarms


def test_three_within_a_day_are_enough():
    assert ALARMS_MAX == 3
    assert not stops(alarmed(0, 1)) and stops(alarmed(0, 1, 23.9))


def test_what_is_a_day_old_does_not_count():
    assert not stops(alarmed(0, 1, 24)) and stops(alarmed(0, 1, 24, 24.5))


def test_alarms_from_before_the_clock_was_put_back_do_not_count():
    assert alarmed(100, 101, 2) == (2 * HOUR_NS,)


def test_a_person_who_resumes_begins_anew():
    assert not stops(())
