"""Lessons that are known: asked again, fading, rolled back; and what fails, waits or is held."""

import msgspec
import pytest
from support.taught_world import TaughtWorld, teaching

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked, reasons
from apollod.core.facts.lessons.distances import distance_of, longest_s, nth
from apollod.core.facts.lessons.stages import CALLS, Stage
from apollod.core.fold import fold
from apollod.core.schedules import DAY_NS, SECOND_NS

HOUR_S = 3600.0


@pytest.fixture
def world() -> TaughtWorld:
    return TaughtWorld(teaching()).up()


# --- being asked again -----------------------------------------------------------------------------------------------


def test_a_known_lesson_is_asked_again_at_growing_distances(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    world.teach()
    known_ns = world.now
    times = list[float]()
    for _ in range(4 * 24 * 100):
        world.pass_time(HOUR_S / 4)
        world.teach()
        times += [(world.now - known_ns) / SECOND_NS / HOUR_S] if len(world.of(ev.LessonBegun)) > len(times) + 1 else []
    assert times[:5] == [1, 25, 25 + 168, 193 + 720, 913 + 720]
    curve = world.state.lessons.lessons["L1"].curve
    assert [(one.passed, one.of) for one in curve] == [(4, 4)] * len(times) and world.states() == {"L1": "known"}
    assert all(e.stage is Stage.AGAIN for e in world.of(ev.LessonBegun)[1:])


def test_a_number_of_steps_is_a_distance_too() -> None:
    world = TaughtWorld(teaching(ask_again=("3 steps", "1h"))).up()
    world.want("old", "known")
    world.teach()
    world.lines("a", "b")
    world.teach()
    assert len(world.of(ev.LessonBegun)) == 1
    world.lines("c", source="g")
    world.teach()
    assert len(world.of(ev.LessonBegun)) == 2 and world.state.lessons.due == [(world.now + 3600 * SECOND_NS, 1)]
    assert not world.state.lessons.due_steps


def test_none_is_asked_again_where_no_distance_is_set() -> None:
    world = TaughtWorld(teaching(ask_again=())).up()
    world.want("old", "known")
    world.teach()
    world.pass_time(400 * 86_400)
    world.teach()
    assert len(world.of(ev.LessonBegun)) == 1


def test_what_fades_is_practised_again(world: TaughtWorld) -> None:
    first = world.want("who is x", "Ann")
    world.teach()
    world.harms = {"who is y": "who is x"}
    world.want("who is y", "Bob")
    world.teach()
    world.pass_time(HOUR_S)
    world.teach()
    (fading,) = [e for e in world.of(ev.LessonFading) if e.lesson == first]
    assert fading.passed == (0, 4) and fading.reason == "asked again, 0 of 4 held-out wordings pass"
    assert world.states()[first] == "known" and [e.lesson for e in world.of(ev.LessonKnown)].count(first) == 2
    assert [(one.passed, one.of) for one in world.state.lessons.lessons[first].curve] == [(0, 4)]
    begun = [(e.stage, e.why) for e in world.of(ev.LessonBegun) if e.lesson == first]
    assert begun == [(Stage.WORDING, "given"), (Stage.AGAIN, "again"), (Stage.TESTING, "fading")]


def test_lessons_that_are_due_and_lessons_that_wait_take_turns(world: TaughtWorld) -> None:
    for n in range(3):
        world.want(f"old {n}", "known")
    world.teach()
    seen = len(world.of(ev.LessonBegun))
    world.give(inp.PauseRequested("p"))
    world.pass_time(HOUR_S)
    for n in range(3):
        world.want(f"old {n + 3}", "known")
    world.give(inp.ResumeRequested("p"))
    world.teach()
    assert [e.why for e in world.of(ev.LessonBegun)][seen:] == ["again", "given"] * 3


@pytest.mark.parametrize("years", [-2, 2])
def test_a_clock_that_was_wrong_asks_too_early_rather_than_never(world: TaughtWorld, years: int) -> None:
    world.want("old", "known")
    world.teach()
    world.now += years * 365 * DAY_NS
    world.give(inp.Tick())
    world.teach()
    assert len(world.of(ev.LessonBegun)) == 2


def test_words_for_distances() -> None:
    assert [distance_of(text) for text in ("90s", "5 min", "1h", "30d", "2 w", "1 step", "200 steps")] == [
        (90, 0), (300, 0), (3600, 0), (30 * 86_400, 0), (14 * 86_400, 0), (0, 1), (0, 200)
    ]  # fmt: skip
    assert nth(("1h", "2 steps"), 7) == (0, 2) and nth((), 0) is None and longest_s(("1h", "2 steps")) == 3600
    for none in ("soon", "0h", "1", "-1d", "1.5h", "1 month"):
        with pytest.raises(ValueError, match=f"'{none}' is no distance; write a number"):
            distance_of(none)


# --- rollbacks, failures, deaths -------------------------------------------------------------------------------------


def test_a_rollback_of_its_steps_has_a_known_lesson_asked_at_once(world: TaughtWorld) -> None:
    first = world.want("who is x", "Ann")
    world.teach()
    world.want("old", "known")
    world.teach()
    world.give(inp.RollbackWanted(0, "t"))
    world.teach()
    asked_again = [e.lesson for e in world.of(ev.LessonBegun) if e.stage is Stage.AGAIN]
    assert asked_again == [first], "what no step taught is not concerned"
    assert world.states()[first] == "known" and world.says("who is x") == "Ann"


def test_a_lesson_whose_steps_are_repeated_after_a_forgetting_is_asked_when_that_is_over(world: TaughtWorld) -> None:
    world.lines("a")
    world.settle()
    first = world.want("who is x", "Ann")
    world.teach()
    world.give(inp.ForgetWanted(("a",), "me"))
    world.teach()
    assert world.says("who is x") == "Ann" and not world.of(ev.LessonFading)
    assert [e.lesson for e in world.of(ev.LessonBegun) if e.stage is Stage.AGAIN] == [first]
    kinds = world.kinds()
    assert kinds.index("forget.completed") < len(kinds) - kinds[::-1].index("lesson.begun") - 1
    newest = world.state.lessons.lessons[first].last_step
    assert newest == world.of(ev.StepStarted)[-1].step, "a later rollback of the repeated step concerns it"


def test_answers_of_weights_that_were_taken_back_do_not_count(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    while not (world.calls and getattr(world.calls[0], "stage", None) is Stage.TESTING):
        world.settle()
        world.call()
    (late,) = world.calls
    world.give(inp.RollbackWanted(1, "t"))
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


def test_late_answers_and_answers_of_others_change_nothing(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    world.want("who is y", "Bob")
    world.teach(9)
    for call in world.answered:
        assert world.give(world.reply(call)) == [], call


@pytest.mark.parametrize("what", ["pause", "halt", "rollback"])
def test_teaching_waits_and_says_why(world: TaughtWorld, what: str) -> None:
    assert "teaching" not in reasons(world.state)
    if what == "pause":
        world.give(inp.PauseRequested("p"))
    elif what == "halt":
        world.give(inp.Refused("step", "no"))
    elif what == "rollback":
        world.lines("a")
        world.settle()
        world.give(inp.RollbackWanted(0, "t"))
    world.want("who is x", "Ann")
    assert blocked(Activity.TEACHING, world.state) == reasons(world.state)["teaching"] != ""
    assert not world.of(ev.LessonBegun) and world.states() == {"L1": "waiting"}


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
