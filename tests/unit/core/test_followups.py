"""What a person wrote next, where no cue speaks: who is asked, when, and what follows."""

import random

import pytest
from support.said_world import SaidWorld, undo
from support.world import SETTINGS, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.followups import Known, measured, shortfall, threshold_of
from apollod.core.facts.intake.events import BY_SCORE, Evidence
from apollod.core.rules.followups import CASES_FAILURES_MAX, RECALIBRATE_STEPS, WAITING_MAX, unused

RIGHT = tuple(Known(3.0 + n / 9 if rejects else -3.0 - n / 9, rejects) for n in range(24) for rejects in (True, False))
ALWAYS_YES = tuple(Known(5.0, rejects) for _ in range(24) for rejects in (True, False))


def at_random(seed: int) -> tuple[Known, ...]:
    drawn = random.Random(seed)
    return tuple(Known(drawn.gauss(0, 2), rejects) for _ in range(24) for rejects in (True, False))


class FollowUpWorld(SaidWorld):
    """Follow-ups are noted by hand, and the model answers when it is told to."""

    @property
    def questions(self) -> list[str]:
        return [e.example for e in self.of(ev.FollowUpRequested)]

    def follows(self, *answers: str) -> None:
        """A person wrote something after these answers, and no cue speaks of it."""
        unscored = tuple(
            Evidence(BY_SCORE, "correction", 0.0, f"k {one}", "s", ("r1",), "that is the port of the other one")
            for one in answers
        )
        batch = inp.Batch("log", "/log", 10, 1, (inp.Line(number=9, unscored=unscored),), learn=self.learn)
        responses = {f"k {one}": one for one in answers if one in self.known}
        self.give(inp.LinesRead(batch, frozenset(), responses))

    def cases(self, told: tuple[Known, ...]) -> None:
        self.drop()
        self.give(inp.CasesDone(told))

    def answers(self, example: str, odds: float) -> None:
        self.drop()
        noted = next(e for e in reversed(self.of(ev.FollowUpNoted)) if e.example == example)
        self.give(inp.FollowUpDone(example, noted, odds))

    def answer(self) -> bool:
        self.drop()
        return super().answer()

    def drop(self) -> None:
        for one in [one for one in self.asked if isinstance(one, fx.ScoreFollowUp)]:
            self.asked.remove(one)


REVERSED = tuple(Known(-one.odds, one.rejects) for one in RIGHT)


def paused(**settings: object) -> FollowUpWorld:
    w = FollowUpWorld(changed(SETTINGS, **settings)).up()
    w.give(inp.TrainingPaused("t"))
    return w


def test_one_that_is_right_about_the_cases_is_asked_and_what_it_finds_is_held() -> None:
    w = paused()
    w.says("first", "second", "third")
    w.follows("first", "second")
    assert w.questions == [""], "the cases come first"
    w.cases(RIGHT)
    (told,) = w.of(ev.FollowUpsCalibrated)
    assert told.used and (told.flagged, told.hits, told.rejecting) == (24, 24, 24) and -3 < told.threshold < 3
    assert w.questions == ["", "second"], "the newest first, one at a time"
    w.answers("second", told.threshold - 0.1)
    w.answers("first", told.threshold + 0.1)
    assert w.states() == {"first": "held", "second": "pending", "third": "pending"}
    (flagged,) = w.of(ev.SignalFlagged)
    assert (flagged.cue, flagged.polarity, flagged.strength, flagged.example) == (BY_SCORE, "correction", 0.45, "first")
    (held,) = w.of(ev.ExampleHeld)
    assert held.by == "evidence" and "that is the port of the other one" in held.reason
    w.follows("first", "second")
    assert w.questions == ["", "second", "first"], "nothing is asked twice"
    assert not w.state.followups.waiting and w.state.followups.open is None


def test_what_was_learned_meanwhile_is_to_be_forgotten() -> None:
    w = FollowUpWorld().up()
    w.says("first")
    w.settle()
    assert w.state.training.version == 1
    w.follows("first")
    w.cases(RIGHT)
    w.answers("first", 9.0)
    assert [e.examples for e in w.of(ev.ForgetRequested)] == [("first",)]


@pytest.mark.parametrize("told", [ALWAYS_YES, at_random(1), at_random(2), REVERSED])
def test_one_that_is_not_right_about_the_cases_is_not_asked(told: tuple[Known, ...]) -> None:
    w = paused()
    w.says("first")
    w.follows("first")
    w.cases(told)
    assert not w.of(ev.FollowUpsCalibrated)[0].used and w.questions == [""]
    assert unused(w.state).startswith("right in ") and " of 48 cases" in unused(w.state)
    w.says("second")
    w.follows("second")
    w.pass_time(1000)
    assert w.questions == [""] and len(w.of(ev.FollowUpNoted)) == 1, "nor is anything noted"
    w.state.training.version += RECALIBRATE_STEPS
    w.follows("second")
    assert w.questions == ["", ""], "the model is another one by now"


def test_chance_alone_is_hardly_ever_taken_for_being_right() -> None:
    used = sum(not shortfall(measured(at_random(seed))) for seed in range(2000))
    assert used <= 2
    assert "right in 24 of 48 cases: found 0 of 24" in shortfall(measured(ALWAYS_YES))


def test_the_threshold_weighs_a_false_alarm_twice() -> None:
    told = [Known(4, True), Known(3, True), Known(2, False), Known(1, True), Known(0, True), Known(-1, False)]
    assert threshold_of(told) == 2.5
    assert threshold_of([*told, Known(0.5, True)]) == -0.5
    assert threshold_of([Known(1, False)]) == 2.0


def test_what_speaks_already_or_is_switched_off_or_learned_anyhow_is_not_noted() -> None:
    w = paused()
    w.says("first", shown=(undo("first"),))
    w.give(inp.DecisionsGiven((inp.Decision("first", "decline"),), "p"))
    w.follows("first", "unknown")
    assert not w.of(ev.FollowUpNoted)
    w.learn = "all"
    w.says("second")
    w.follows("second")
    assert not w.of(ev.FollowUpNoted)
    off = paused(score="off")
    off.says("first")
    off.follows("first")
    assert not off.of(ev.FollowUpNoted) and unused(off.state) == '[signals] score = "off"'


def test_what_is_decided_meanwhile_is_not_asked_about_and_so_many_wait_at_most() -> None:
    w = paused()
    names = [f"e{n:03}" for n in range(WAITING_MAX + 5)]
    w.says(*names)
    w.follows(*names)
    assert list(w.state.followups.waiting) == names[5:]
    w.give(inp.ExampleWithdrawn((names[-1],), "p"))
    w.cases(RIGHT)
    assert w.questions == ["", names[-2]]


def test_a_question_that_a_crash_left_open_is_asked_once_more() -> None:
    w = paused()
    w.says("first", "second")
    w.follows("second", "first")
    for _ in range(2):
        assert w.state.followups.open == ""
        w = w.crash_and_return()
    assert w.questions == ["", ""] and "ended twice" in unused(w.state)
    w = w.crash_and_return()
    w.cases(RIGHT)
    assert w.questions[2:] == ["", "first"]
    w = w.crash_and_return()
    assert w.questions[4:] == ["first"]
    w = w.crash_and_return()
    assert w.questions[5:] == ["second"], "no third time, and the cases count still"


def test_an_engine_that_does_not_answer_is_asked_less_often_and_then_given_up() -> None:
    w = paused()
    w.says("first")
    w.follows("first")
    for n in range(CASES_FAILURES_MAX):
        w.drop()
        w.give(inp.CasesDone(error="it answered 501", retryable=True))
        assert w.questions == [""] * (n + 1)
        w.pass_time(400)
    assert len(w.questions) == CASES_FAILURES_MAX and unused(w.state) == "it answered 501"
    refused = paused()
    refused.says("first")
    refused.follows("first")
    refused.drop()
    refused.give(inp.CasesDone(error="no log-probabilities"))
    refused.pass_time(400)
    assert refused.questions == [""]
