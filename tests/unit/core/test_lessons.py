"""Lessons: what is asked and practised next, and what follows from each answer."""

import gc
import sys
from types import FrameType
from typing import Any

import msgspec
import pytest
from support.taught_world import HELD_OUT, PRACTICE, TaughtWorld, teaching, worded
from support.world import digest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.rounds import left, seed_of, spent
from apollod.core.facts.lessons.stages import CALLS, TRANSITIONS, Stage, after
from apollod.core.facts.lessons.state import Lesson
from apollod.core.rules.lessons.standing import alike
from apollod.core.settings import ScheduleSettings

HOUR_S = 3600.0


@pytest.fixture
def world() -> TaughtWorld:
    return TaughtWorld(teaching()).up()


# --- the course of a lesson ------------------------------------------------------------------------------------------


def test_every_course_ends_and_every_stage_is_left() -> None:
    for stage in Stage:
        seen = {stage}
        while Stage.OVER not in seen:
            more = {into for (out_of, _), into in TRANSITIONS.items() if out_of in seen} or {Stage.OVER}
            assert more - seen, stage
            seen |= more
    assert Stage.LEARNING not in CALLS and after(Stage.TOLD, "failed") is after(Stage.AGAIN, "failed") is Stage.OVER


def test_what_is_asked_is_greedy_first_and_sampled_only_where_that_passes(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    world.teach()
    greedy, told, first, second, *sampled = world.of(ev.LessonAsked)
    assert [(e.stage, e.mode) for e in (greedy, told)] == [(Stage.BASELINE, "bare"), (Stage.TOLD, "told")]
    assert all(one.seed is None for e in (greedy, told) for one in e.answers)
    assert [one.wording for one in first.answers] == list(range(HELD_OUT))
    assert (greedy.round, first.round, second.round) == (1, 2, 3) and {e.round for e in sampled} == {3}
    assert [e.proof for e in (greedy, told, first, second, *sampled)] == [0, 0, 0, 0, 1, 1], (
        "what is greedy proves nothing"
    )
    assert [len(e.answers) for e in sampled] == [8, 8], "two to each wording, then what is missing"
    answers = [one for e in sampled for one in e.answers]
    assert [one.wording for one in answers] == [n % HELD_OUT for n in range(16)]
    assert [one.seed for one in answers] == list(range(seed_of("L1", 3), seed_of("L1", 3) + 16))


@pytest.mark.parametrize(("drifted", "drift", "ends"), [(0.04, 0.05, False), (0.06, 0.05, True), (9.0, 0.0, False)])
def test_a_lesson_is_given_up_when_other_answers_move_too_far(drifted: float, drift: float, ends: bool) -> None:
    settings = teaching(drift=drift).lessons
    lesson = Lesson("L1", Given("s"), "p", 0, steps=30, budget_from=7)
    why = f"other answers moved by {drifted:.3f} nats a token ([lessons] drift = {drift:g})"
    assert spent(lesson, drifted, settings) == (why if ends else "") and left(lesson, settings) == 1


def test_a_step_that_finds_it_known_already_is_a_practice(world: TaughtWorld) -> None:
    world.losses = {}
    world.want("who is x", "Ann")
    while len(world.of(ev.LessonPrepared)) < PRACTICE:
        world.call()
    world.losses = {one.example: 0.0 for one in world.of(ev.LessonPrepared)}
    world.settle()
    practised = world.of(ev.LessonPractised)
    assert {e.step for e in practised} == {1} and all("nothing was written" in e.reason for e in practised)


# --- words, and lessons about the same question ----------------------------------------------------------------------


def test_a_lesson_without_wordings_is_given_up(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    nothing = msgspec.structs.replace(worded(Given(question="who is x", answer="Ann")), held_out=())
    world.give(inp.LessonWorded("L1", "told", nothing))
    assert world.of(ev.LessonGivenUp)[0].reason == "there is no held-out wording of it"


def test_a_lesson_replaces_others_on_its_subject_that_cannot_be_true_beside_it(world: TaughtWorld) -> None:
    old, same, gone = world.want("who is x", "Ann"), world.want("name of x", "Bob"), world.want("odd x", "Ann")
    world.teach()
    new = world.want("keeper of x", "Bob")
    world.settle()
    heard = world.reply(world.calls.pop(0))
    assert isinstance(heard, inp.LessonWorded)
    world.give(msgspec.structs.replace(heard, replaces=(old, same, gone, new, "L99")))
    world.teach()
    assert [(e.lesson, e.by) for e in world.of(ev.LessonReplaced)] == [(old, new)]
    assert world.states() == {old: "replaced", same: "known", gone: "given up", new: "known"}
    asks = [one for one in world.answered if isinstance(one, fx.AskLesson) and one.lesson == new]
    assert asks and all(one.not_these == ("Ann",) for one in asks), "the old answer has to be gone"


@pytest.mark.parametrize(("one", "other", "same"), [
    ("7341", "7,341", True), ("Ann", " ann. ", True), ("3.5", "35", False), ("-5", "5", False), ("a b", "a  b!", True),
])  # fmt: skip
def test_answers_are_alike_but_for_case_spaces_commas_and_what_stands_around(one, other, same) -> None:
    assert alike(one, other) == same == alike(other, one)


# --- what people want ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nightly", [True, False])
def test_all_known_lessons_are_asked_again_when_a_night_begins(nightly: bool) -> None:
    night = ScheduleSettings(nightly="02:00-05:00", zone="Europe/Berlin")
    world = TaughtWorld(msgspec.structs.replace(teaching(nightly=nightly, ask_again=()), schedule=night)).up()
    world.want("who is x", "Ann")
    world.want("old", "known")
    world.teach()
    assert set(world.states().values()) == {"known"}
    opens_ns = world.now + 10 * 3600 * 10**9
    world.give(inp.NightPlanned(opens_ns, opens_ns + 3 * 3600 * 10**9, "02:00-05:00", "Europe/Berlin"))
    world.pass_time(10 * 3600)
    world.teach()
    assert len(world.of(ev.LessonKept)) == (2 if nightly else 0) and not world.state.lessons.due


# --- many ------------------------------------------------------------------------------------------------------------


def test_ten_thousand_known_lessons_do_not_slow_a_decision_down(world: TaughtWorld) -> None:
    own = world.state.lessons
    world.want("old", "known")
    world.teach()
    few = instructions(world)
    template = own.lessons["L1"]
    for n in range(2, 10_002):
        due = template.due_ns + n
        own.lessons[f"L{n}"] = msgspec.structs.replace(template, id=f"L{n}", due_ns=due)
        own.due.append((due, n))
    own.number = 10_001
    assert instructions(world) == few > 100


def instructions(world: TaughtWorld) -> int:
    """Of the interpreter, for one decision: a loop over lessons takes some for each of them."""
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    decide(world.state, inp.Advance(), world.now)  # what is remembered after the first time
    gc.disable()  # a collection may call back into Python, which would be counted
    sys.settrace(trace)
    try:
        decide(world.state, inp.Advance(), world.now)
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def test_an_example_is_told_from_its_text_its_lesson_and_the_number_of_the_practice() -> None:
    from apollod.core.rules.lessons.replies import example_of

    record = digest("r")
    ids = {example_of(record, lesson, n) for lesson in ("L1", "L11") for n in (1, 11, 111)}
    assert len(ids) == 6 and {len(one) for one in ids} == {32}
