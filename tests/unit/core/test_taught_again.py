"""A line that is given again: when it is taught again, and what is forgotten with it."""

import pytest
from property.test_core_properties import folded
from support.world import SETTINGS, World, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.rules.intake.accepting import again_id, family


def learned(after: float = 2.0, tier: ev.Tier = "bulk") -> World:
    """A world that has learned the line `a`, whose loss was 2.0 before, and has scored it again."""
    world = World(changed(SETTINGS, rescore=8)).up()
    world.losses, world.after = dict.fromkeys(("a", again_id("a", 1), again_id("a", 2)), 2.0), {"a": after}
    world.lines("a", tier=tier)
    world.settle()
    assert "a" in world.state.rescoring.gains
    return world


def again(world: World, tier: ev.Tier, **others: object) -> list[ev.ExampleAccepted]:
    """Give the line again, and have it learned; what was accepted."""
    before = len(world.of(ev.ExampleAccepted))
    line = inp.Line(number=1, example="a", record=b"{}", **others)  # type: ignore[arg-type]
    world.give(inp.LinesRead(inp.Batch("g", "/in/g", 10, 1, (line, line), tier=tier), frozenset()))
    for _ in range(5):
        world.settle()
        world.pass_time(70)
    return world.of(ev.ExampleAccepted)[before:]


@pytest.mark.parametrize(
    ("first", "after", "now", "taught"),
    [
        ("bulk", 0.1, "bulk", False),
        ("bulk", 1.9, "bulk", True),
        ("bulk", 0.1, "direct", True),
        ("direct", 0.1, "bulk", False),
        ("direct", 0.1, "direct", False),
        ("direct", 1.9, "direct", True),
        ("direct", 1.9, "bulk", True),
    ],
)
def test_what_was_learned_weakly_or_from_a_file_and_is_given_directly_is_taught_again(
    first: ev.Tier, after: float, now: ev.Tier, taught: bool
) -> None:
    world = learned(after, first)
    found = again(world, now)
    assert [(e.example, e.again_of, e.tier) for e in found] == ([(again_id("a", 1), "a", now)] if taught else [])
    assert len(world.of(ev.ExampleDuplicate)) == 2 - taught, "the second line of the same text is a duplicate"
    assert world.state.training.counts.trained == 1 + taught and folded(world) == world.state


def test_each_learning_is_an_example_and_counts_as_the_newest() -> None:
    world = learned(1.9)
    world.after |= {again_id("a", 1): 1.9, again_id("a", 2): 0.1}
    assert [e.again_of for e in again(world, "direct")] == ["a"]
    assert [e.example for e in again(world, "direct")] == [again_id("a", 2)]
    assert again(world, "direct") == [] and world.state.training.counts.trained == 3
    assert world.state.intake.again == {again_id("a", 1): "a", again_id("a", 2): again_id("a", 1)}


def test_a_file_that_comes_again_and_again_does_not_teach_for_ever() -> None:
    world = learned(1.9)
    ids = [again_id("a", n) for n in range(1, 9)]
    world.losses |= dict.fromkeys(ids, 2.0)
    world.after |= dict.fromkeys(ids, 1.9)
    assert [len(again(world, "bulk")) for _ in range(4)] == [1, 1, 0, 0]
    assert len(again(world, "direct")) == 1


def test_what_a_log_repeats_is_a_duplicate_however_weak_it_is() -> None:
    assert again(learned(1.9), "direct", of_log=True) == []


def test_what_waits_or_was_taken_back_is_a_duplicate() -> None:
    world = World(SETTINGS).up()
    world.give(inp.TrainingPaused("t"))
    world.lines("a")
    assert again(world, "direct") == [], "it is learned yet"
    taken = learned(1.9)
    taken.give(inp.RollbackRequested(0, "t"))
    taken.settle()
    assert again(taken, "direct") == [], "somebody took it back: `relearn` is what puts it back"


def test_the_same_answer_in_another_record_is_taught_again_and_only_once() -> None:
    world = World(SETTINGS).up()
    row = inp.Line(number=1, example="row", record=b"{}", responses=(inp.Response("k"),))
    world.give(inp.LinesRead(inp.Batch("f", "/in/f", 10, 1, (row,)), frozenset()))
    world.settle()
    given = inp.Line(number=1, example="given", record=b"{}", responses=(inp.Response("k"),))
    for _ in range(2):
        world.give(inp.LinesRead(inp.Batch("ctl", "ctl", 0, 1, (given,), tier="direct", tracked=False), frozenset()))
        world.settle()
    assert [(e.example, e.again_of) for e in world.of(ev.ExampleAccepted)] == [("row", ""), ("given", "row")]
    assert [e.responses for e in world.of(ev.ExampleAccepted)] == [("k",), ()], "evidence names the first of a family"
    assert world.state.training.counts.trained == 2


@pytest.mark.parametrize("named", ["a", again_id("a", 1)])
def test_forgetting_one_forgets_all_that_taught_the_same(named: str) -> None:
    world = learned(1.9)
    again(world, "direct")
    world.lines("b", source="h")
    world.settle()
    world.give(inp.ForgetRequested((named,), "t", ""))
    for _ in range(5):
        world.settle()
        world.pass_time(70)
    assert world.state.intake.withdrawn.keys() == {"a", again_id("a", 1)}
    bare = World(SETTINGS).up()
    bare.lines("b", source="h")
    bare.settle()
    assert world.state.training.counts.trained == 1 and again(world, "direct") == []


def test_what_waits_to_be_taught_again_is_taken_out_of_the_queue_with_what_is_forgotten() -> None:
    world = learned(1.9)
    world.give(inp.TrainingPaused("t"))
    again(world, "direct")
    world.give(inp.ForgetRequested(("a",), "t", ""))
    assert again_id("a", 1) in world.state.intake.withdrawn and not world.state.intake.pending


def test_a_family() -> None:
    said = {"b": "a", "c": "b", "y": "x"}
    assert family(said, ["b"]) == ["b", "a", "c"] and family(said, ["y", "z"]) == ["y", "z", "x"]
    assert family({}, ["q", "q"]) == ["q"]
