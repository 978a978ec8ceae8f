"""What is held, and who decides: in time, too late, twice, or not at all."""

import pytest
from support.world import SETTINGS, World, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.sampling import is_held


@pytest.fixture
def world() -> World:
    w = World().up()
    w.lines("a", "b", "c", hold=1.0)
    w.settle()
    return w


def decide(w: World, choice: str, *examples: str, by: str = "p", only_in: str = "") -> list[str]:
    chosen = tuple(inp.Decision(one, choice, only_in=only_in) for one in examples)
    return [event.kind for event in w.give(inp.DecisionsGiven(chosen, by)) if event.kind.startswith("example.")]


def learned(w: World) -> list[str]:
    w.settle()
    return [e.example for e in w.of(ev.StepCompleted)]


def test_what_is_held_is_learned_when_somebody_approves_it_and_in_that_order(world: World) -> None:
    assert learned(world) == [] and list(world.state.review.held) == ["a", "b", "c"]
    assert decide(world, "approve", "c", "a", "c") == ["example.approved"] * 2
    assert learned(world) == ["c", "a"] and list(world.state.review.held) == ["b"]


def test_of_two_people_the_last_one_wins_unless_they_only_decide_about_what_is_held(world: World) -> None:
    world.give(inp.PauseRequested("t"))
    assert decide(world, "approve", "a", by="one") == ["example.approved"]
    assert decide(world, "decline", "a", by="two", only_in="held") == []
    assert decide(world, "decline", "a", by="two") == ["example.declined"]
    assert decide(world, "approve", "a", by="one", only_in="held") == []
    assert decide(world, "approve", "b") == ["example.approved"]
    world.give(inp.ResumeRequested("t"))
    assert learned(world) == ["b"]


def test_a_decision_can_be_taken_back_until_the_example_is_learned(world: World) -> None:
    decide(world, "decline", "a")
    assert decide(world, "hold", "a", "b") == ["example.held"]
    assert list(world.state.review.held) == ["b", "c", "a"]
    decide(world, "approve", "a")
    assert learned(world) == ["a"]
    assert decide(world, "hold", "a") == decide(world, "decline", "a") == decide(world, "approve", "a") == []
    assert decide(world, "approve", "nobody") == []


def test_decisions_that_belong_together_are_all_done_or_none(world: World) -> None:
    world.give(inp.PauseRequested("t"))
    decide(world, "approve", "a")
    both = (inp.Decision("a", "hold", only_in="pending"), inp.Decision("b", "decline", only_in="pending"))
    assert world.give(inp.DecisionsGiven(both, "p", together=True)) == []
    assert [e.kind for e in world.give(inp.DecisionsGiven(both, "p"))] == ["example.held"]
    decide(world, "approve", "a", "b")
    done = world.give(inp.DecisionsGiven(both, "p", together=True))
    assert [e.kind for e in done] == ["example.held", "example.declined"]


def test_what_was_written_instead_is_learned_first_and_the_original_is_not(world: World) -> None:
    world.give(inp.PauseRequested("t"))
    decide(world, "approve", "b")
    line = inp.Line(number=1, example="w", record=b"{}")
    events = world.give(inp.EditGiven("a", line, "p"))
    assert [event.kind for event in events[:2]] == ["example.accepted", "example.edited"]
    assert world.give(inp.EditGiven("a", inp.Line(number=1, example="x", record=b"{}"), "p")) == []  # edited already
    assert world.give(inp.EditGiven("c", inp.Line(number=1, example="w", record=b"{}"), "p", known=True)) == []
    assert world.give(inp.EditGiven("c", inp.Line(number=1, example="c", record=b"{}"), "p")) == []
    world.give(inp.ResumeRequested("t"))
    assert learned(world) == ["w", "b"]
    assert world.state.review.dismissed["a"].how == "edited"


def test_what_nobody_decides_about_is_given_up_after_its_days_and_can_still_be_approved(world: World) -> None:
    world.pass_time(29 * 86_400)
    assert len(world.state.review.held) == 3
    world.pass_time(2 * 86_400)
    assert world.state.review.held == {} and learned(world) == []
    assert world.of(ev.ExampleExpired) == [ev.ExampleExpired(examples=("a", "b", "c"), days=30.0)]
    decide(world, "approve", "b")
    assert learned(world) == ["b"]


def test_without_days_nothing_is_given_up() -> None:
    settings = changed(SETTINGS, hold_days=0.0)
    w = World(settings).up()
    w.lines("a", hold=1.0)
    w.pass_time(10_000 * 86_400)
    assert list(w.state.review.held) == ["a"]


def test_an_example_whose_step_could_not_be_run_can_be_tried_again() -> None:
    w = World().up()
    w.lines("large1")
    w.settle()
    assert w.state.review.held["large1"].reason == "its step could not be run: out of memory"
    assert decide(w, "approve", "large1") == ["example.approved"]
    w.settle()
    assert len(w.of(ev.StepFailed)) == 2 and list(w.state.review.held) == ["large1"]


def test_a_sample_is_the_same_every_time_and_as_large_as_it_says() -> None:
    ids = [f"{n * 2654435761 % 2**32:08x}" + "0" * 24 for n in range(10_000)]
    chosen = [one for one in ids if is_held(one, "bulk", 0.1)]
    assert 950 < len(chosen) < 1050
    assert not any(is_held(one, "direct", 0.999) for one in ids) and all(is_held(one, "direct", 1.0) for one in ids)
    assert not any(is_held(one, "bulk", 0.0) for one in ids)
