"""Who is named by `[quality] on_alarm` is told of an alarm and its end, at least once, and nothing waits for it."""

from contextlib import suppress

import msgspec
import pytest
from support.guarded_world import GUARDED, ITEMS, GuardedWorld
from support.world import Died

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import obstacle
from apollod.core.rules.quality.telling import ATTEMPTS

TOLD = msgspec.structs.replace(GUARDED, on_alarm=True)
LINES = ("a", "b", "c", "d", "bad", "e", "f", "g")


def world(settings: ev.Settings = TOLD, dies_at: int = 0) -> GuardedWorld:
    w = GuardedWorld(settings, dies_at)
    w.poison = {"bad": ITEMS}
    return w


def alarmed(settings: ev.Settings = TOLD) -> GuardedWorld:
    """An alarm that was settled, of which nobody was told yet."""
    w = world(settings).up()
    w.lines(*LINES)
    w.settle()
    assert len(w.of(ev.QualitySettled)) == 1
    return w


def told(w: GuardedWorld) -> list[tuple[str, bool, int, bool, float]]:
    return [(e.about, e.ok, e.attempt, e.gives_up, e.retry_s) for e in w.of(ev.QualityTold)]


def test_where_nobody_is_named_nothing_is_told_or_kept_to_be_told() -> None:
    w = alarmed(GUARDED)
    assert not w.telling and not w.state.quality.telling.waiting and not w.of(ev.QualityTold)


def test_the_alarm_and_then_its_end_are_told_while_everything_goes_on() -> None:
    w = alarmed()
    assert w.learned() == ["a", "b", "c", "d", "e", "f", "g"] and w.of(ev.RollbackCompleted), (
        "nobody waits for whom is told"
    )
    (first,) = w.telling
    (alarm,) = w.of(ev.QualityAlarmed)
    assert (first.incident, first.about, first.message.step, first.message.to) == (1, "alarmed", 6, 3)
    assert (first.message.metrics, first.message.drops) == (alarm.metrics, alarm.drops)
    assert w.tells() == [ev.QualityTold(incident=1, about="alarmed", ok=True)]
    (second,) = w.telling
    assert (second.about, second.message.step, second.message.drops) == ("settled", 6, alarm.drops)
    assert (second.message.by, second.message.taken_back) == ("the quality guard", 3) and second.message.how
    assert second.message.at_ns >= first.message.at_ns
    w.tells()
    w.give(inp.Tick())
    assert not w.telling and told(w) == [("alarmed", True, 1, False, 0.0), ("settled", True, 1, False, 0.0)]


def test_a_failure_is_recorded_and_tried_again_with_longer_waits_and_then_given_up() -> None:
    w = alarmed()
    for attempt in range(1, ATTEMPTS):
        w.tells(f"no answer\n{attempt}")
        wait = 2.0 ** (attempt - 1)
        assert told(w)[-1] == ("alarmed", False, attempt, False, wait)
        assert w.state.quality.telling.error == f"no answer {attempt}" and not w.telling
        w.pass_time(wait - 0.1)
        assert not w.telling
        w.pass_time(0.2)
    w.tells("x" * 1000)
    assert told(w)[-1] == ("alarmed", False, ATTEMPTS, True, 0.0)
    assert len(w.state.quality.telling.error) == 300
    assert [one.about for one in w.telling] == ["settled"], "what comes next is told all the same"
    w.tells("still no answer")
    assert told(w)[-1] == ("settled", False, 1, False, 1.0), "counted from 1"
    w.pass_time(1)
    w.tells()
    assert w.state.quality.telling.error == "" and w.learned() == ["a", "b", "c", "d", "e", "f", "g"]


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    w = alarmed()
    for incident, about in ((2, "alarmed"), (1, "settled")):
        assert w.give(inp.AlarmTold(incident, about)) == []
    w.tells()
    w.tells()
    assert w.give(inp.AlarmTold(1, "settled")) == [] and len(told(w)) == 2


def test_nothing_is_told_while_the_daemon_stops_and_the_rest_when_it_is_back() -> None:
    w = alarmed()
    w.give(inp.StopRequested("t"))
    w.tells()
    assert not w.telling
    after = w.successor()
    assert isinstance(after, GuardedWorld)
    after.up()
    assert [one.about for one in after.telling] == ["settled"]


def test_a_later_life_may_have_others_to_tell_or_nobody() -> None:
    w = alarmed()
    w.tells("gone")
    after = w.successor()
    assert isinstance(after, GuardedWorld)
    after.up()
    assert after.state.quality.telling.retry.failures == 0 and [one.about for one in after.telling] == ["alarmed"]
    silent = after.successor()
    silent.settings = GUARDED
    silent.up()
    assert not silent.state.quality.telling.waiting and not obstacle(silent.state).startswith("an alarm")
    again = silent.successor()
    assert isinstance(again, GuardedWorld)
    again.settings = TOLD
    again.up()
    assert not again.telling, "of what was long ago nobody is told"


def test_no_journal_is_archived_before_everything_was_told() -> None:
    w = alarmed()
    w.give(inp.CheckpointRequested("t"))
    w.settle()
    assert "was not told yet" in obstacle(w.state)
    w.tells()
    w.tells()
    assert obstacle(w.state) == ""


def life(w: GuardedWorld) -> None:
    w.up()
    w.lines(*LINES, source=f"f{len(w.journal)}")
    w.settle()
    while w.telling:
        w.tells()


CALM = world()
life(CALM)


@pytest.mark.parametrize("instant", range(1, CALM.instants + 1))
def test_a_crash_at_each_instant_tells_all_at_least_once_and_at_most_twice(instant: int) -> None:
    w = world(dies_at=instant)
    with suppress(Died):
        life(w)
    after = w.successor()
    assert isinstance(after, GuardedWorld)
    life(after)
    assert {(e.incident, e.about) for e in after.of(ev.QualityTold) if e.ok} == {(1, "alarmed"), (1, "settled")}
    assert len(after.of(ev.QualityTold)) == 2, "the result is recorded once"
    for about in ("alarmed", "settled"):
        assert [*w.begun_to_tell, *after.begun_to_tell].count((1, about)) in (1, 2)
