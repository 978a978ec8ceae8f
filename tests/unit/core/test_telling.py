"""Who is named by `[quality] on_alarm` is told of an alarm and its end, at least once, and nothing waits for it."""

from contextlib import suppress

import msgspec
import pytest
from support.guarded_world import GUARDED, ITEMS, GuardedWorld
from support.world import Died

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import obstacle

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


def test_the_reason_of_a_failure_is_cut() -> None:
    w = alarmed()
    w.tells("x" * 1000)
    assert len(w.state.quality.telling.error) == 300


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
