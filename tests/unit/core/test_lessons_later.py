"""Lessons that are known: asked again, fading, rolled back; and what fails, waits or is held."""

import msgspec
import pytest
from support.taught_world import TaughtWorld, teaching

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.lessons.rounds import distance_of, longest_s, nth
from apollod.core.facts.lessons.stages import CALLS, Stage
from apollod.core.fold import fold

HOUR_S = 3600.0


@pytest.fixture
def world() -> TaughtWorld:
    return TaughtWorld(teaching()).up()


# --- being asked again -----------------------------------------------------------------------------------------------


def test_words_for_distances() -> None:
    assert [distance_of(text) for text in ("90s", "5 min", "1h", "30d", "2 w", "1 step", "200 steps")] == [
        (90, 0), (300, 0), (3600, 0), (30 * 86_400, 0), (14 * 86_400, 0), (0, 1), (0, 200)
    ]  # fmt: skip
    assert nth(("1h", "2 steps"), 7) == (0, 2) and nth((), 0) is None and longest_s(("1h", "2 steps")) == 3600
    for none in ("soon", "0h", "1", "-1d", "1.5h", "1 month"):
        with pytest.raises(ValueError, match=f"'{none}' is no distance; write a number"):
            distance_of(none)


# --- rollbacks, failures, deaths -------------------------------------------------------------------------------------


def test_answers_of_weights_that_were_taken_back_do_not_count(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    while not (world.calls and getattr(world.calls[0], "stage", None) is Stage.TESTING):
        world.settle()
        world.call()
    (late,) = world.calls
    world.give(inp.RollbackRequested(1, "t"))
    world.settle()
    world.calls.remove(late)
    assert world.give(world.reply(late)) == []
    world.teach()
    assert world.states() == {"L1": "known"}


@pytest.mark.parametrize("stage", sorted(CALLS - {Stage.AGAIN}))
def test_a_call_that_fails_is_made_again_and_given_up_if_it_is_refused_each_time(world, stage) -> None:
    world.want("who is x", "Ann")
    while not (world.calls and getattr(world.calls[0], "stage", None) is stage):
        world.settle()
        world.call()
    for attempt in range(1, 9):
        world.fail()
        assert world.state.lessons.retry.failures == attempt and not world.of(ev.LessonGivenUp)
        assert not world.calls
        world.pass_time(400)
    practised = len(world.of(ev.LessonPractised))
    for cause in ("refused", "refused", "endpoint", "refused"):
        assert not world.of(ev.LessonGivenUp) and len(world.of(ev.LessonPractised)) == practised
        world.fail(cause, "it is too long")
        world.pass_time(400)
    if stage is Stage.PREPARING:
        assert [(e.step, e.reason) for e in world.of(ev.LessonPractised)] == [(0, "it is too long")]
    else:
        assert world.of(ev.LessonGivenUp)[0].reason == f"{stage} failed 3 times, the last time because: it is too long"
    assert not world.state.lessons.retry.failures and not world.state.lessons.error


def test_answers_by_weights_before_the_last_practice_do_not_count(world: TaughtWorld) -> None:
    """The engine hears of a step a moment after it is done."""
    world.want("who is x", "Ann")
    while not (world.calls and getattr(world.calls[0], "stage", None) is Stage.TESTING):
        world.settle()
        world.call()
    reply = world.reply(world.calls.pop(0))
    asked, newest = len(world.of(ev.LessonAsked)), world.state.training.version
    world.give(msgspec.structs.replace(reply, weights_version=newest - 1))
    (failed,) = world.of(ev.LessonFailed)
    assert failed.reason == f"the engine answered with weights {newest - 1}, and step {newest} taught it since"
    assert len(world.of(ev.LessonAsked)) == asked
    world.pass_time(2)
    world.teach()
    assert world.states() == {"L1": "known"}


def test_answers_that_were_not_asked_for_are_a_failed_call(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    world.call()
    reply = world.reply(world.calls.pop(0))
    world.give(msgspec.structs.replace(reply, answers=reply.answers[:-1]))
    (failed,) = world.of(ev.LessonFailed)
    assert (failed.cause, failed.reason) == ("nonsense", "the answers are not those that were asked for")
    assert not world.of(ev.LessonAsked)


@pytest.mark.parametrize("learned", [True, False])
def test_a_lesson_is_given_up_when_one_of_its_examples_is_held(world: TaughtWorld, learned: bool) -> None:
    """By the guard, which found that it did harm, or by a person."""
    world.want("who is x", "Ann")
    world.want("who is y", "Bob")
    if learned:
        world.teach()
        held = ev.ExampleHeld(example=world.of(ev.LessonPractised)[2].example, tier="direct", reason="facts got worse")
        world.journal.append(ev.Recorded(len(world.journal) + 1, world.now, held))
        fold(world.state, world.journal[-1])
        world.give(inp.Tick())
    else:
        while len(world.of(ev.LessonPrepared)) < 2:
            world.settle()
            world.call()
        world.give(inp.DecisionsGiven((inp.Decision(world.of(ev.LessonPrepared)[1].example, "hold"),), "me"))
    (gave_up,) = world.of(ev.LessonGivenUp)
    assert gave_up.lesson == "L1" and gave_up.reason.startswith("one of its examples is held: ")
    world.teach()
    assert world.states() == {"L1": "given up", "L2": "known"} and not world.state.lessons.harmful
