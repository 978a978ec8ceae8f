"""Dreams at night (transcripts/schedule.txt has nights and what waits for them)."""

import msgspec
from support.world import SETTINGS, World

from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import Check, PatternSettings, ScheduleSettings

HOUR = 3600
OPENS, CLOSES = 1_000 + 10 * HOUR, 1_000 + 13 * HOUR  # the world begins at 1000 s
NIGHT = inp.NightPlanned(OPENS * SECOND_NS, CLOSES * SECOND_NS, "02:00-05:00", "Europe/Berlin")


def known(w: World, days: int = 0) -> None:
    """The night of so many days later is the next one, or it is now."""
    day_ns = 24 * HOUR * SECOND_NS
    w.give(inp.NightPlanned(NIGHT.opens_ns + days * day_ns, NIGHT.closes_ns + days * day_ns, NIGHT.hours, NIGHT.zone))


def off(w: World, hours: float) -> World:
    """The daemon dies and is started again so much later."""
    other = w.successor()
    other.now += int(hours * HOUR) * SECOND_NS
    return other.up()


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
    world.give(inp.DreamingStarted("ctl"))
    assert blocked(Activity.DREAMING, world.state) != told
