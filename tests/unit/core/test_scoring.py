"""What is scored, when, and how often it is asked for."""

import math

import pytest
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.order import first
from apollod.core.fold import fold
from apollod.core.rules.scoring import ATTEMPTS_MAX


def begun(divergence: str = "held", **others: int) -> World:
    world = World(changed(SETTINGS, divergence=divergence, **others)).up()
    world.give(inp.PauseRequested("t"))
    return world


def asked(world: World) -> list[str]:
    return [e.example for e in world.of(ev.ScoreRequested)]


@pytest.mark.parametrize(("divergence", "scored"), [("off", []), ("held", ["h1", "h2"]), ("all", ["w1", "h1", "h2"])])
def test_what_was_stripped_of_text_is_scored_once_and_one_after_the_other(divergence: str, scored: list[str]) -> None:
    world = begun(divergence)
    world.lines("w1", stripped=True, source="w")
    world.lines("w2", source="v")
    world.lines("h1", "h2", hold=1.0, stripped=True)
    world.lines("h3", hold=1.0, source="u")
    assert len(asked(world)) == min(1, len(scored)), "one at a time"
    world.settle()
    world.pass_time(1000)
    world.settle()
    assert asked(world) == scored
    told = world.of(ev.ExampleScored)
    assert [(e.example, e.divergence, e.tokens) for e in told] == [(one, 2.0, 4) for one in scored]
    assert not world.state.scoring.open and not world.state.scoring.candidates


def test_what_is_learned_or_decided_about_meanwhile_is_not_asked_for() -> None:
    world = begun()
    world.lines("h1", "h2", "h3", hold=1.0, stripped=True)
    world.give(inp.DecisionsGiven((inp.Decision("h2", "approve"), inp.Decision("h3", "decline")), "p"))
    world.settle()
    assert asked(world) == ["h1"]
    world.give(inp.DecisionsGiven((inp.Decision("h3", "hold"),), "p"))
    world.settle()
    assert asked(world) == ["h1", "h3"], "it is held again"
    world.give(inp.ResumeRequested("t"))
    world.settle()
    assert [e.example for e in world.of(ev.StepCompleted)] == ["h2"] and "h2" not in world.state.scoring.stripped


def test_an_engine_that_gives_no_answer_is_asked_later_and_then_the_example_is_given_up() -> None:
    world = begun()
    world.lines("h1", hold=1.0, stripped=True)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        assert isinstance(world.asked[-1], fx.ScoreExample)
        world.asked.pop()
        world.give(inp.ExampleScoreDone("h1", error="it did not answer", retryable=True))
        assert len(asked(world)) == attempt
        world.pass_time(0.5)
        assert len(asked(world)) == attempt, "not before a while has passed"
        world.pass_time(60)
    assert [(e.attempts, e.in_a_row, e.given_up) for e in world.of(ev.ScoreFailed)] == [
        (1, 1, False), (2, 2, False), (3, 3, True)
    ]  # fmt: skip
    assert len(asked(world)) == ATTEMPTS_MAX and not world.state.scoring.stripped
    world.lines("h2", hold=1.0, stripped=True, source="g")
    world.settle()
    assert asked(world)[-1] == "h2" and world.state.scoring.retry.failures == 0


def test_what_cannot_be_scored_is_given_up_at_once_and_keeps_nobody_waiting() -> None:
    world = begun()
    world.lines("odd1", "h1", hold=1.0, stripped=True)
    world.settle()
    (failed,) = world.of(ev.ScoreFailed)
    assert (failed.example, failed.given_up, failed.in_a_row) == ("odd1", True, 0)
    assert [e.example for e in world.of(ev.ExampleScored)] == ["h1"]


def test_without_an_engine_nothing_is_asked_and_after_a_crash_once_more() -> None:
    world = begun()
    world.lines("h1", hold=1.0, stripped=True)
    world = world.successor()
    world.start()
    assert asked(world) == ["h1"] and world.state.scoring.candidates, "there is no engine yet"
    world.engine_up()
    world.settle()
    assert asked(world) == ["h1", "h1"] and len(world.of(ev.ExampleScored)) == 1
    world = world.crash_and_return()
    assert len(asked(world)) == 2
    late = world.give(inp.ExampleScoreDone("h1", -1.0, -2.0, 3, 0, 0.1))
    assert late == [], "an answer to a question of an earlier life"


def test_what_is_to_be_scored_follows_the_settings_of_this_life() -> None:
    world = begun("off")
    world.lines("w1", stripped=True)
    world.lines("h1", hold=1.0, stripped=True, source="g")
    world.settle()
    for divergence, scored in (("held", ["h1"]), ("all", ["h1", "w1"])):
        world = world.successor()
        world.settings = changed(SETTINGS, divergence=divergence)
        world.up()
        world.settle()
        assert asked(world) == scored


def test_a_score_keeps_no_step_waiting() -> None:
    world = World(changed(SETTINGS, divergence="all")).up()
    world.lines("w1", "w2", "w3", stripped=True)
    score = next(one for one in world.asked if isinstance(one, fx.ScoreExample))
    world.asked.remove(score)  # the engine takes its time
    world.settle()
    assert [e.example for e in world.of(ev.StepCompleted)] == ["w1", "w2", "w3"]
    world.give(inp.ExampleScoreDone(score.example, -1.0, -2.0, 3, 0, 0.1))
    assert not world.state.scoring.open and len(world.of(ev.ExampleScored)) == 1


def scores(world: World) -> list[tuple[str, int]]:
    return [(e.example, e.after) for e in world.of(ev.ExampleScored)]


def test_what_was_scored_and_learned_is_scored_once_more_when_nothing_waits() -> None:
    world = begun("all")
    world.lines("w1", "w2", stripped=True)
    world.settle()
    world.give(inp.ResumeRequested("t"))
    world.settle_until(fx.RunStep)
    assert scores(world) == [("w1", 0), ("w2", 0)]
    world.settle()
    assert scores(world) == [("w1", 0), ("w2", 0), ("w1", 1), ("w2", 2)]
    last = [e for e in world.of(ev.StepCompleted)][-1]
    order = [type(r.event).__name__ for r in world.journal if r.event == last or isinstance(r.event, ev.ScoreRequested)]
    assert order == ["ScoreRequested"] * 2 + ["StepCompleted"] + ["ScoreRequested"] * 2, "no step waits for it"
    world = world.crash_and_return()
    world.settle()
    assert len(scores(world)) == 4 and not world.state.scoring.learned


def test_what_taught_nothing_or_was_taken_back_is_not_scored_again() -> None:
    world = begun("all")
    world.losses["w1"] = math.inf
    world.lines("w1", "w2", stripped=True)
    world.settle()
    world.give(inp.ResumeRequested("t"))
    world.settle_until(fx.ScoreExample)
    asked_ = world.asked.popleft()
    assert asked_ == fx.ScoreExample("w2", after=2) and world.state.scoring.open == "w2"
    world.give(inp.RollbackWanted(to=0, by="p"))
    world.settle()
    assert world.of(ev.RollbackCompleted)
    late = inp.ExampleScoreDone("w2", -1.0, -2.0, 3, 2, 0.1, after=2)
    assert world.give(late) == [], "it is of weights that are gone"
    world.settle()
    assert scores(world) == [("w1", 0), ("w2", 0)] and not world.state.scoring.learned


@pytest.mark.parametrize("most", [0, 3])
def test_of_a_large_file_a_few_are_scored_again(most: int) -> None:
    """The same ones whenever it is learned, and not the first ones of it."""
    world = begun("all", divergence_after=most)
    world.lines(*(f"{n:02}{9 - n % 10}" for n in range(20)), stripped=True)
    world.settle()
    world.give(inp.ResumeRequested("t"))
    world.settle()
    assert [example for example, after in scores(world) if after] == ["090", "190", "081"][:most]


def test_what_is_learned_again_after_a_rollback_is_scored_again() -> None:
    world = begun("all")
    world.keeps_steps = True
    world.lines("w1", "w2", "w3", stripped=True)
    world.settle()
    world.give(inp.ResumeRequested("t"))
    world.settle_until(fx.ScoreExample)
    assert world.asked.popleft() == fx.ScoreExample("w1", after=1)
    world.give(inp.ExampleScoreDone("w1", -1.0, -2.0, 3, 3, 0.1, after=1))
    assert world.asked.popleft() == fx.ScoreExample("w2", after=2)
    late = inp.ExampleScoreDone("w2", -1.0, -2.0, 3, 3, 0.1, after=2)
    world.give(inp.RollbackWanted(to=1, by="p"))
    world.settle_until(fx.ScoreExample)
    assert world.asked[0] == fx.ScoreExample("w1", after=1), "that score was of weights that were taken back"
    world.settle()
    world.give(inp.RelearnRequested((("w2", "bulk"), ("w3", "bulk")), "p"))
    world.settle_until(fx.ScoreExample)
    assert world.state.scoring.open == "w2" and world.give(late) == [], "an answer to a question of before"
    world.settle()
    assert scores(world)[3:] == [("w1", 1), ("w1", 1), ("w2", 4), ("w3", 5)]


def test_after_a_crash_a_second_score_waits_until_the_weights_are_those_of_the_last_step() -> None:
    world = begun("all")
    world.lines("w1", stripped=True)
    world.settle()
    world.give(inp.ResumeRequested("t"))
    world.settle_until(fx.ScoreExample)
    world = world.successor()
    world.start()
    world.engine_up()
    assert world.state.children.engine.phase == "ready" and world.state.children.trainer.phase != "ready"
    assert len(asked(world)) == 2, "before and after, in the former life"
    world.settle()
    assert scores(world) == [("w1", 0), ("w1", 1)] and len(asked(world)) == 3
    late = inp.ExampleScoreDone("w1", -1.0, -2.0, 3, 1, 0.1, after=1)
    assert world.give(late) == [], "never twice"


def test_a_pause_and_the_day_are_times_for_second_scores_and_a_running_step_is_none() -> None:
    world = begun("all")
    world.lines("w1", "w2", "w3", stripped=True)
    world.settle()
    world.give(inp.ResumeRequested("t"))
    world.settle_until(fx.RunStep)
    world.answer()
    world.settle_until(fx.RunStep)
    world.give(inp.PauseRequested("t"))
    assert world.state.training.running is not None and len(scores(world)) == 3, "nothing beside a step"
    world.settle()
    assert world.state.queued == 1 and scores(world)[3:] == [("w1", 1), ("w2", 2)]


def test_a_second_score_that_cannot_be_made_is_given_up() -> None:
    world = begun("all")
    world.lines("w1", stripped=True)
    world.settle()
    world.give(inp.ResumeRequested("t"))
    world.settle_until(fx.ScoreExample)
    world.asked.popleft()
    world.give(inp.ExampleScoreDone("w1", error="it is too long", after=1))
    assert world.of(ev.ScoreFailed)[-1].given_up and not world.state.scoring.learned


def test_no_second_score_is_made_where_none_are_wanted_any_more() -> None:
    world = begun("all")
    world.lines("w1", stripped=True)
    world.settle()
    world = world.successor()
    world.settings = changed(SETTINGS, divergence="off")
    world.up()
    world.give(inp.ResumeRequested("t"))
    world.settle()
    assert [e.applied for e in world.of(ev.StepCompleted)] == [True] and scores(world) == [("w1", 0)]


def test_what_owes_most_to_stripped_text_is_learned_first_and_the_rest_in_order() -> None:
    w = World(changed(SETTINGS, divergence="off")).up()
    w.give(inp.PauseRequested("t"))
    w.lines(*"abcde")
    w.settle()
    for example, divergence in (("d", 0.5), ("b", 2.0), ("e", -1.0)):
        scored = ev.ExampleScored(
            example=example, with_context=divergence, without_context=0.0, divergence=divergence, tokens=1,
            weights_version=0,
        )  # fmt: skip
        w.journal.append(ev.Recorded(len(w.journal) + 1, w.now, scored))
        fold(w.state, w.journal[-1])
    w.give(inp.ResumeRequested("t"))
    w.settle()
    assert [e.example for e in w.of(ev.StepStarted)] == ["b", "d", "a", "c", "e"] and not w.state.intake.scores


def test_an_example_that_waits_for_a_day_is_overtaken_by_no_score() -> None:
    w = World(changed(SETTINGS, divergence="off")).up()
    w.give(inp.PauseRequested("t"))
    w.lines("a")
    w.settle()
    w.pass_time(90_000)
    w.lines("b", source="later")
    w.settle()
    w.state.intake.scores["b"] = 3.0
    assert first(w.state.intake, 1.0).example == "a"  # type: ignore[union-attr]
