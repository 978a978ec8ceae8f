"""Nights: what waits for them, what does not, and what is done when they end."""

import msgspec
import pytest
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import ScheduleSettings

HOUR = 3600
OPENS, CLOSES = 1_000 + 10 * HOUR, 1_000 + 13 * HOUR  # the world begins at 1000 s
NIGHT = inp.NightKnown(OPENS * SECOND_NS, CLOSES * SECOND_NS, "02:00-05:00", "Europe/Berlin")


def world_with(**settings: object) -> World:
    w = World(changed(SETTINGS, nightly="02:00-05:00", zone="Europe/Berlin", **settings)).up()
    w.give(NIGHT)
    return w


@pytest.fixture
def world() -> World:
    return world_with(delay_s=10 * HOUR, every_s=0.0)


def learned(w: World) -> list[str]:
    w.settle()
    return [e.example for e in w.of(ev.StepCompleted)]


def test_by_day_only_what_is_given_directly_is_learned(world: World) -> None:
    world.lines("a", "b")
    world.lines("d", tier="direct", source="ctl")
    assert learned(world) == ["d"]
    assert blocked(Activity.STEP, world.state) == (
        "what came from files and logs is learned at night (02:00-05:00 Europe/Berlin)"
    )
    world.pass_time(10 * HOUR)
    assert learned(world) == ["d", "a", "b"] and world.of(ev.NightOpened) == [ev.NightOpened(waiting=2)]


def test_the_work_of_a_night_ends_with_a_checkpoint(world: World) -> None:
    world.lines("a", "b")
    world.pass_time(10 * HOUR)
    assert learned(world) == ["a", "b"]
    assert [e.step for e in world.of(ev.CheckpointCommitted)] == [2]
    world.lines("d", tier="direct", source="ctl")
    world.settle()
    world.pass_time(60)
    assert [e.step for e in world.of(ev.CheckpointCommitted)] == [2, 3]  # it is night still
    world.pass_time(3 * HOUR)
    assert world.of(ev.NightClosed) == [ev.NightClosed(steps=3, waiting=0)]
    world.lines("e", tier="direct", source="ctl2")
    world.settle()
    world.pass_time(60)
    assert len(world.of(ev.CheckpointCommitted)) == 2  # by day the usual times count


def test_what_is_not_done_when_a_night_ends_waits_for_the_next_one_and_what_is_done_is_saved(world: World) -> None:
    world.lines("a", "b", "c")
    world.pass_time(10 * HOUR)
    world.settle_until(fx.RunStep)
    world.answer()  # a
    world.pass_time(3 * HOUR)
    assert learned(world) == ["a", "b"]  # the step that ran goes on
    assert world.of(ev.NightClosed)[-1].waiting == 1
    assert [e.step for e in world.of(ev.CheckpointCommitted)] == [2]
    day = 24 * HOUR * SECOND_NS
    world.give(inp.NightKnown(NIGHT.opens_ns + day, NIGHT.closes_ns + day, NIGHT.hours, NIGHT.zone))
    world.pass_time(20 * HOUR)
    assert learned(world) == ["a", "b"]
    world.pass_time(HOUR)
    assert learned(world) == ["a", "b", "c"]


def test_a_night_takes_more_examples_at_once() -> None:
    w = World(msgspec.structs.replace(SETTINGS, schedule=ScheduleSettings(NIGHT.hours, NIGHT.zone, accumulate=3))).up()
    w.give(NIGHT)
    w.lines("a", "b", "c", "e")
    w.pass_time(10 * HOUR)
    w.settle()
    assert [ev.all_examples(e) for e in w.of(ev.StepCompleted)] == [("a", "b", "c"), ("e",)]


def test_other_hours_close_a_night_and_none_at_all_end_the_waiting(world: World) -> None:
    world.lines("a")
    world.pass_time(11 * HOUR)
    assert world.state.schedule.open
    world.give(inp.NightKnown((CLOSES + HOUR) * SECOND_NS, (CLOSES + 2 * HOUR) * SECOND_NS, "06:00-07:00", ""))
    assert not world.state.schedule.open and world.kinds().count("night.closed") == 1
    world.give(NIGHT)
    assert world.state.schedule.open
    again = World(SETTINGS)
    again.state, again.journal = world.state, world.journal
    assert again.give(inp.NightKnown())[0].kind == "night.closed" and again.state.schedule.planned is None


def test_a_clock_that_is_put_back_closes_a_night_and_it_opens_again(world: World) -> None:
    world.pass_time(10 * HOUR)
    assert world.state.schedule.open
    world.now -= 5 * HOUR * SECOND_NS
    world.give(inp.Tick())
    assert not world.state.schedule.open
    world.pass_time(5 * HOUR)
    assert world.state.schedule.open


def test_nothing_follows_from_hours_that_are_known(world: World) -> None:
    assert world.give(NIGHT) == []
