"""What is scored, when, and how often it is asked for."""

import pytest
from support.world import SETTINGS, World, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.state import first
from apollod.core.fold import fold


def begun(divergence: str = "held", **others: int) -> World:
    world = World(changed(SETTINGS, divergence=divergence, **others)).up()
    world.give(inp.TrainingPaused("t"))
    return world


def scores(world: World) -> list[tuple[str, int]]:
    return [(e.example, e.after) for e in world.of(ev.ExampleScored)]


@pytest.mark.parametrize("most", [0, 3])
def test_of_a_large_file_a_few_are_scored_again(most: int) -> None:
    """The same ones whenever it is learned, and not the first ones of it."""
    world = begun("all", divergence_after=most)
    world.lines(*(f"{n:02}{9 - n % 10}" for n in range(20)), stripped=True)
    world.settle()
    world.give(inp.TrainingResumed("t"))
    world.settle()
    assert [example for example, after in scores(world) if after] == ["090", "190", "081"][:most]


def test_what_owes_most_to_stripped_text_is_learned_first_and_the_rest_in_order() -> None:
    w = World(changed(SETTINGS, divergence="off")).up()
    w.give(inp.TrainingPaused("t"))
    w.lines(*"abcde")
    w.settle()
    for example, divergence in (("d", 0.5), ("b", 2.0), ("e", -1.0)):
        scored = ev.ExampleScored(
            example=example, with_context=divergence, without_context=0.0, divergence=divergence, tokens=1,
            weights_version=0,
        )  # fmt: skip
        w.journal.append(ev.Recorded(len(w.journal) + 1, w.now, scored))
        fold(w.state, w.journal[-1])
    w.give(inp.TrainingResumed("t"))
    w.settle()
    assert [e.example for e in w.of(ev.StepStarted)] == ["b", "d", "a", "c", "e"] and not w.state.intake.scores


def test_an_example_that_waits_for_a_day_is_overtaken_by_no_score() -> None:
    w = World(changed(SETTINGS, divergence="off")).up()
    w.give(inp.TrainingPaused("t"))
    w.lines("a")
    w.settle()
    w.pass_time(90_000)
    w.lines("b", source="later")
    w.settle()
    w.state.intake.scores["b"] = 3.0
    assert first(w.state.intake, 1.0).example == "a"  # type: ignore[union-attr]
