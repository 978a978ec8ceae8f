"""What a person or a log says between a wish that something be forgotten and its end, or about a part of an answer."""

import pytest
from support.said_world import SaidWorld, passed, undo
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp


def test_evidence_about_a_step_that_then_fails_keeps_its_example_out_of_the_next_one() -> None:
    w = SaidWorld(changed(SETTINGS, accumulate=2)).up()
    w.says("a", "large b")
    w.settle_until(fx.RunStep)
    w.says(shown=(undo("a"),))
    w.settle()
    assert w.memory == "base" and set(w.state.intake.withdrawn) == {"a"}
    assert [e.examples or (e.example,) for e in w.of(ev.StepStarted)][1:] == [("large b",)]


def test_what_is_called_good_before_it_was_forgotten_stays_learned() -> None:
    w = World().up()
    w.rate("r", "good")
    w.settle()
    w.give(inp.TrainingPaused("t"))
    w.rate("r", "bad")
    assert set(w.state.forgetting.wanted) == {"good r"}
    w.rate("r", "good")
    w.give(inp.TrainingResumed("t"))
    w.settle()
    assert not w.state.forgetting.wanted and w.state.training.version == 1 and not w.of(ev.ForgetStarted)


@pytest.mark.parametrize("by", ["rating", "early rating", "relearn"])
def test_what_a_person_asks_for_again_while_others_are_repeated_is_learned_again(by: str) -> None:
    w = World().up()
    w.rate("r", "good")
    w.settle()
    w.rate("s", "good")
    w.settle()
    w.rate("r", "bad")
    if by == "early rating":
        w.settle_until(fx.Restore)
    else:
        w.repeating()
    if "rating" in by:
        w.rate("r", "good")
    else:
        w.give(inp.RelearnRequested((("good r", "direct"),), "anna"))
    w.settle()
    assert not w.state.intake.withdrawn and not w.state.intake.undone
    assert [e.example for e in w.of(ev.StepStarted)] == ["good r", "good s", "good s", "good r"]


def test_evidence_about_a_long_answer_is_about_all_of_its_parts() -> None:
    w = SaidWorld().up()
    lines = tuple(
        inp.Line(number=1, example=f"part {n}", record=b"{}", responses=(inp.Response("k a", part=n),), of_log=True)
        for n in range(3)
    )
    w.give(inp.LinesRead(inp.Batch("log", "/log", 10, 1, lines, learn="unrejected"), frozenset()))
    w.settle()
    assert w.state.training.version == 3
    w.says(shown=(undo("a"),))
    w.settle()
    assert w.memory == "base" and set(w.state.intake.withdrawn) == {"part 0", "part 1", "part 2"}


def test_no_case_for_the_judge_is_made_of_what_only_a_log_approved() -> None:
    w = SaidWorld().up()
    w.learn = "positive"
    w.says("a")
    w.says(shown=(passed("a"),))
    assert w.of(ev.ExampleApproved)[0].by == "evidence" and not w.state.judging.reviewed


@pytest.mark.parametrize("how", ["hold", "withdraw", "forget"])
def test_no_case_for_the_judge_is_made_of_what_a_person_took_back(how: str) -> None:
    w = SaidWorld().up()
    w.give(inp.TrainingPaused("t"))
    w.says("a", shown=(undo("a"),))
    w.give(inp.DecisionsGiven((inp.Decision("a", "approve"),), "anna"))
    assert set(w.state.judging.reviewed) == {"a"}
    if how == "hold":
        w.give(inp.DecisionsGiven((inp.Decision("a", "hold"),), "anna"))
    elif how == "withdraw":
        w.give(inp.ExampleWithdrawn(("a",), "anna"))
    else:
        w.give(inp.TrainingResumed("t"))
        w.settle()
        w.give(inp.ForgetRequested(("a",), "anna", ""))
    assert not w.state.judging.reviewed
