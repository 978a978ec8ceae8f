"""Nights: what waits for them, what does not, and what is done when they end."""

import msgspec
import pytest
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import Check, PatternSettings, ScheduleSettings

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


# --- nights that were missed ------------------------------------------------------------------------------------------

DAY_NS = 24 * HOUR * SECOND_NS


def known(w: World, days: int = 0) -> None:
    """The night of so many days later is the next one, or it is now."""
    w.give(inp.NightKnown(NIGHT.opens_ns + days * DAY_NS, NIGHT.closes_ns + days * DAY_NS, NIGHT.hours, NIGHT.zone))


def off(w: World, hours: float) -> World:
    """The daemon dies and is started again so much later."""
    other = w.successor()
    other.now += int(hours * HOUR) * SECOND_NS
    return other.up()


def opened(w: World) -> list[ev.NightOpened]:
    return w.of(ev.NightOpened)


def began(w: World) -> int:
    """When the last night did, or what is caught up."""
    return [r.at_ns for r in w.journal if isinstance(r.event, ev.NightOpened)][-1]


def test_a_night_in_which_the_daemon_was_off_is_caught_up_at_the_next_start(world: World) -> None:
    world = off(world, 16)
    known(world, 1)
    world.pass_time(1)
    assert not opened(world), "nothing waits"
    world.lines("a", "b")
    world.pass_time(1)
    assert learned(world) == ["a", "b"]
    (late,) = opened(world)
    assert late.waiting == 2 and late.until_ns == began(world) + 3 * HOUR * SECOND_NS
    world.pass_time(60)
    assert not world.state.schedule.open and [e.step for e in world.of(ev.CheckpointCommitted)] == [2]
    world.lines("c")
    world.pass_time(60)
    assert learned(world) == ["a", "b"], "what comes later is of the next night"
    world.pass_time(19 * HOUR)
    assert learned(world) == ["a", "b", "c"]


def test_several_nights_are_caught_up_as_one_and_no_longer_than_one(world: World) -> None:
    world = off(world, 64)
    known(world, 3)
    world.lines("a", "b", "c")
    world.pass_time(1)
    world.settle_until(fx.RunStep)
    world.answer()  # a
    world.pass_time(3 * HOUR)
    world.settle()
    world.pass_time(1)
    assert learned(world) == ["a", "b"], "the step that ran goes on, and the rest waits"
    assert not world.state.schedule.open and len(opened(world)) == 1
    world = off(world, 1)
    known(world, 3)
    world.pass_time(1)
    assert learned(world) == ["a", "b"], "there is nothing to catch up any more"


def test_what_was_missed_of_a_night_is_what_is_caught_up(world: World) -> None:
    world.lines("a", "b", "c")
    world.pass_time(10 * HOUR)
    world.pass_time(HOUR)
    world.settle_until(fx.RunStep)
    world.answer()  # a, after an hour of the night
    world = off(world, 4)
    known(world, 1)
    world.pass_time(1)
    late = opened(world)[-1]
    assert abs(late.until_ns - began(world) - 2 * HOUR * SECOND_NS) < 60 * SECOND_NS


@pytest.mark.parametrize("waiting", [True, False])
def test_a_night_in_which_it_was_paused_is_caught_up_when_it_is_resumed_if_anything_waited(waiting: bool) -> None:
    world = world_with(delay_s=10 * HOUR)
    if waiting:
        world.lines("a")
    world.give(inp.PauseRequested(by="ctl"))
    for _ in range(14):
        world.pass_time(HOUR)
    known(world, 1)
    world.pass_time(1)
    assert learned(world) == [] and not world.state.schedule.open
    world.pass_time(2 * HOUR)
    world.give(inp.ResumeRequested(by="ctl"))
    world.lines("b")
    world.pass_time(1)
    assert learned(world) == (["a", "b"] if waiting else [])


def test_a_pause_while_a_night_is_caught_up_loses_nothing_of_it(world: World) -> None:
    world = off(world, 16)
    known(world, 1)
    world.give(inp.PauseRequested(by="ctl"))
    world.lines("a")
    world.pass_time(1)
    assert not opened(world)
    world.give(inp.ResumeRequested(by="ctl"))
    world.pass_time(1)
    world.give(inp.PauseRequested(by="ctl"))
    world.pass_time(4 * HOUR)
    world.give(inp.ResumeRequested(by="ctl"))
    world.lines("b")
    world.pass_time(1)
    assert learned(world) == ["a", "b"]


@pytest.mark.parametrize("why", ["it is not wanted", "other hours", "the clock was put back", "too late", "new"])
def test_what_is_no_missed_night(why: str) -> None:
    world = World(changed(SETTINGS, nightly="02:00-05:00", zone="Europe/Berlin", catch_up=why != "it is not wanted"))
    world.up()
    if why != "new":
        known(world)
    world = off(world, 16 if why != "the clock was put back" else -0.2)
    if why == "other hours":
        world.give(inp.NightKnown(OPENS * SECOND_NS + DAY_NS, CLOSES * SECOND_NS + DAY_NS, "03:00-06:00", NIGHT.zone))
    else:
        known(world, 0 if why == "the clock was put back" else 1)
    if why == "too late":
        world.pass_time(1.1 * HOUR)
    world.lines("a")
    world.pass_time(1)
    assert learned(world) == [] and not opened(world)


def test_a_night_that_opens_while_another_one_is_caught_up_takes_over(world: World) -> None:
    world = off(world, 32)
    known(world, 1)
    world.lines("a")
    world.pass_time(1)
    assert opened(world)[-1].until_ns == NIGHT.opens_ns + DAY_NS
    world.pass_time(3 * HOUR)
    assert [one.until_ns for one in opened(world)] == [NIGHT.opens_ns + DAY_NS, 0]
    assert world.kinds().count("night.closed") == 1


def test_hours_that_nobody_knew_yet_were_not_missed() -> None:
    world = World(changed(SETTINGS, nightly="02:00-05:00", zone="Europe/Berlin")).up()
    world.now += 12 * HOUR * SECOND_NS
    known(world)
    world.lines("a", "b")
    world.settle_until(fx.RunStep)
    world.pass_time(HOUR)
    known(world, 1)
    world.settle()
    assert [one.until_ns for one in opened(world)] == [0] and learned(world) == ["a"]


def test_a_clock_that_is_put_back_ends_what_is_caught_up(world: World) -> None:
    world = off(world, 16)
    known(world, 1)
    world.lines("a", "b")
    world.settle_until(fx.RunStep)
    world.now -= 2 * HOUR * SECOND_NS
    world.give(inp.Tick())
    assert world.kinds().count("night.closed") == 1


# --- dreams at night --------------------------------------------------------------------------------------------------


def test_dreams_begin_at_night_alone_unless_somebody_asks() -> None:
    pattern = PatternSettings("p", "Ask before you act.", check=Check(regex="^Shall"))
    schedule = ScheduleSettings(NIGHT.hours, NIGHT.zone, dream="night")
    dreams = msgspec.structs.replace(SETTINGS.dream, mode="idle", pattern=(pattern,))
    world = World(msgspec.structs.replace(SETTINGS, schedule=schedule, dream=dreams)).up()
    world.give(NIGHT)
    told = "dreams begin at night (02:00-05:00 Europe/Berlin)"
    world.give(inp.EngineUse(False))
    assert blocked(Activity.DREAMING, world.state) == told and not world.state.dreams.number
    world.pass_time(10 * HOUR)
    assert blocked(Activity.DREAMING, world.state) == "" and world.state.dreams.number == 1
    world.pass_time(3 * HOUR)
    assert blocked(Activity.DREAMING, world.state) == "", "the one that is under way is finished"
    known(world, 1)
    world = off(world, 30)
    known(world, 2)
    world.lines("a")
    world.pass_time(1)
    assert world.state.schedule.until_ns and world.state.dreams.open is not None
    world.state.dreams.open = None
    assert blocked(Activity.DREAMING, world.state) == told, "a night that is caught up is for examples"
    world.give(inp.DreamsWanted("ctl"))
    assert blocked(Activity.DREAMING, world.state) != told
