"""Lessons: what is asked and practised next, and what follows from each answer."""

import gc
import sys
from types import FrameType
from typing import Any

import msgspec
import pytest
from support.taught_world import FIRM, HELD_OUT, PRACTICE, TaughtWorld, teaching, worded
from support.world import digest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.budget import left, spent
from apollod.core.facts.lessons.rounds import seed_of
from apollod.core.facts.lessons.stages import CALLS, TRANSITIONS, Stage, after
from apollod.core.facts.lessons.state import Lesson
from apollod.core.rules.lessons.standing import alike
from apollod.core.settings import Practice, ScheduleSettings

HOUR_S = 3600.0


@pytest.fixture
def world() -> TaughtWorld:
    return TaughtWorld(teaching()).up()


def trail(w: TaughtWorld, lesson: str = "L1") -> list[str]:
    return [r.event.kind.removeprefix("lesson.") for r in w.journal if r.event.key() == lesson]


def asked(w: TaughtWorld) -> list[tuple[Stage, int, int]]:
    return [(e.stage, e.round, len(e.answers)) for e in w.of(ev.LessonAsked)]


# --- the course of a lesson ------------------------------------------------------------------------------------------


def test_every_course_ends_and_every_stage_is_left() -> None:
    for stage in Stage:
        seen = {stage}
        while Stage.OVER not in seen:
            more = {into for (out_of, _), into in TRANSITIONS.items() if out_of in seen} or {Stage.OVER}
            assert more - seen, stage
            seen |= more
    assert Stage.LEARNING not in CALLS and after(Stage.TOLD, "failed") is after(Stage.AGAIN, "failed") is Stage.OVER


def test_a_lesson_is_practised_until_it_is_known(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    world.teach()
    rounds = -(-FIRM // PRACTICE)
    (known,) = world.of(ev.LessonKnown)
    assert (known.before, known.after) == ({"bare": (0, 4), "told": (4, 4)}, (4, 4))
    assert len(world.of(ev.LessonPractised)) == rounds * PRACTICE and known.prompt.endswith("practice 0")
    assert known.steps == rounds == len(world.of(ev.StepCompleted)), "a round is one step"
    assert all(e.together and len(e.examples) == PRACTICE for e in world.of(ev.StepStarted))
    assert known.step == world.state.training.version and world.states() == {"L1": "known"}
    practice = ["prepared"] * PRACTICE + ["practised"] * PRACTICE
    assert trail(world) == [
        "given", "begun", "worded", "asked", "asked", *practice, "asked", *practice, *["asked"] * 3, "known"
    ]  # fmt: skip
    assert not world.calls and world.state.lessons.open is None


def test_a_round_practises_eight_wordings_and_the_next_round_goes_on_behind_them(world: TaughtWorld) -> None:
    world.want("dull and varied", "Ann")
    world.teach()
    practised = [e.wording for e in world.of(ev.LessonPractised)]
    assert practised[:32] == [n % 20 for n in range(32)] and len(practised) == 8 * len(world.of(ev.StepCompleted))
    assert all(e.together and len(e.examples) == 8 for e in world.of(ev.StepStarted))


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


def test_a_practice_is_an_example_of_its_own_each_time_and_of_tier_direct(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    world.teach()
    taken = world.of(ev.ExampleAccepted)
    assert len({e.example for e in taken}) == 6 and {e.source for e in taken} == {"lesson:L1"}
    assert {e.tier for e in taken} == {"direct"} and [e.line for e in taken] == [1, 2, 3, 4, 5, 6]
    assert not any(e.responses or e.signature for e in taken), "a person's own line of this text is another example"
    rates = {e.lr for e in world.of(ev.StepStarted)}
    assert rates == {world.settings.trainer.direct_rate}


def test_what_the_told_model_cannot_answer_is_not_trained(world: TaughtWorld) -> None:
    world.want("odd one")
    world.teach()
    (gave_up,) = world.of(ev.LessonGivenUp)
    assert gave_up.reason.startswith("the model cannot answer it even when told: 0 of 4 held-out wordings pass")
    assert not world.of(ev.ExampleAccepted) and gave_up.before == {"bare": (0, 4), "told": (0, 4)}


@pytest.mark.parametrize(("practice", "state"), [("given", "known"), ("told", "given up"), ("own", "given up")])
def test_a_correction_that_the_told_model_does_not_believe_is_learned_from_the_given_answer(
    practice: Practice, state: str
) -> None:
    """What it knows speaks louder than what it is told."""
    world = TaughtWorld(teaching(practice=practice)).up()
    world.want("stubborn", "Ann")
    world.teach()
    world.want("stubborn", "Bob")
    world.teach()
    assert world.of(ev.LessonAsked)[-1].mode == "bare" or practice != "given"
    last = world.state.lessons.lessons["L2"]
    assert (last.before["told"], last.state) == ((0, 4), state) and (last.steps > 0) == (practice == "given")


@pytest.mark.parametrize(("practice", "state"), [("given", "known"), ("own", "given up")])
def test_lessons_of_its_form_may_have_the_told_model_say_something_else(practice: Practice, state: str) -> None:
    world = TaughtWorld(teaching(practice=practice)).up()
    first = world.want("odd owner of a", "Ann")
    world.teach()
    assert world.states() == {first: "given up"}, "nothing of the form was learned"
    world.want("owner of b", "Bob")
    world.teach()
    last, other = world.want("odd owner of c", "Cid"), world.want("odd", "Dan")
    world.teach()
    assert (world.states()[last], world.states()[other]) == (state, "given up")


@pytest.mark.parametrize("steps", [1, 3, 24])
def test_a_lesson_is_given_up_when_its_budget_is_spent(steps: int) -> None:
    world = TaughtWorld(teaching(steps=steps)).up()
    world.want("dull")
    world.teach()
    (gave_up,) = world.of(ev.LessonGivenUp)
    assert gave_up.reason.startswith(f"{steps} steps were not enough ([lessons] steps = {steps}); 0 of 4")
    assert gave_up.steps == steps == len(world.of(ev.StepCompleted))
    assert [e.stage for e in world.of(ev.LessonAsked)].count(Stage.TESTING) == steps, "the last one was tested, too"


@pytest.mark.parametrize(("drifted", "drift", "ends"), [(0.04, 0.05, False), (0.06, 0.05, True), (9.0, 0.0, False)])
def test_a_lesson_is_given_up_when_other_answers_move_too_far(drifted: float, drift: float, ends: bool) -> None:
    settings = teaching(drift=drift).lessons
    lesson = Lesson("L1", Given("s"), "p", 0, steps=30, budget_from=7)
    why = f"other answers moved by {drifted:.3f} nats a token ([lessons] drift = {drift:g})"
    assert spent(lesson, drifted, settings) == (why if ends else "") and left(lesson, settings) == 1


def test_what_is_shown_six_times_of_ten_is_not_known_though_every_greedy_answer_passes(world: TaughtWorld) -> None:
    world.want("flaky")
    world.teach()
    (gave_up,) = world.of(ev.LessonGivenUp)
    assert "4 of 4 held-out wordings pass, and" in gave_up.reason and "answers sampled of them" in gave_up.reason
    assert not world.of(ev.LessonKnown)


def test_examples_that_are_not_learned_end_the_lesson_after_a_round(world: TaughtWorld) -> None:
    world.want("long")
    world.teach()
    (gave_up,) = world.of(ev.LessonGivenUp)
    assert gave_up.reason.startswith("none of its practices was learned, the last one because: its example is not")
    assert [e.step for e in world.of(ev.LessonPractised)] == [0] * PRACTICE and gave_up.steps == 0


def test_what_holds_a_probe_of_the_guard_is_not_trained(world: TaughtWorld) -> None:
    world.leak = "the question of probe p1"
    world.want("who is x", "Ann")
    world.teach()
    assert not world.of(ev.ExampleAccepted)
    assert "it holds the question of probe p1" in world.of(ev.LessonGivenUp)[0].reason


def test_a_step_that_finds_it_known_already_is_a_practice(world: TaughtWorld) -> None:
    world.losses = {}
    world.want("who is x", "Ann")
    while len(world.of(ev.LessonPrepared)) < PRACTICE:
        world.call()
    world.losses = {one.example: 0.0 for one in world.of(ev.LessonPrepared)}
    world.settle()
    practised = world.of(ev.LessonPractised)
    assert {e.step for e in practised} == {1} and all("nothing was written" in e.reason for e in practised)


def test_one_lesson_at_a_time_in_order_and_other_steps_go_on_in_between(world: TaughtWorld) -> None:
    first, second = world.want("who is x", "Ann"), world.want("who is y", "Bob")
    world.teach(6)
    world.lines("a", "b")
    world.teach()
    begun = [e.lesson for e in world.of(ev.LessonBegun)]
    assert begun == [first, second] and world.states() == {first: "known", second: "known"}
    kinds = world.kinds()
    steps = [e.example for e in world.of(ev.StepCompleted)]
    assert 0 < steps.index("a") < len(steps) - 2, "bulk examples do not wait for the last lesson"
    assert kinds.index("lesson.known") < [n for n, k in enumerate(kinds) if k == "lesson.begun"][1]


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


@pytest.mark.parametrize("prepared", [1, PRACTICE])
def test_a_lesson_that_is_replaced_while_its_examples_wait_learns_nothing_more(
    world: TaughtWorld, prepared: int
) -> None:
    world.give(inp.PauseRequested("p"))
    world.give(inp.ResumeRequested("p"))
    old = world.want("who is x", "Ann")
    while len(world.of(ev.LessonPrepared)) < prepared:
        world.call()
    world.give(inp.PauseRequested("p"))
    waiting = list(world.state.lessons.open.examples)
    taken = world.state.intake.taken
    assert len(waiting) == prepared
    new = world.want("who is x", "Bob", replaces=old)
    withdrawn = [one for e in world.of(ev.ExampleWithdrawn) for one in e.examples]
    assert withdrawn == ([] if taken else waiting) and world.states()[old] == "replaced"
    world.give(inp.ResumeRequested("p"))
    world.teach()
    assert world.states()[new] == "known" and world.says("who is x") == "Bob"


def test_the_same_again_asks_the_lesson_that_is_there(world: TaughtWorld) -> None:
    first = world.want("who is x", "Ann")
    world.teach()
    steps = len(world.of(ev.StepCompleted))
    again = world.want("who is x", "ann.")
    world.teach()
    assert world.states() == {first: "known", again: "given up"}
    assert world.state.lessons.lessons[again].reason == f"lesson {first} teaches the same"
    assert [e.lesson for e in world.of(ev.LessonRequested)] == [first]
    assert len(world.of(ev.LessonKnown)) == 2 and len(world.of(ev.StepCompleted)) == steps, "it was known still"


@pytest.mark.parametrize(("one", "other", "same"), [
    ("7341", "7,341", True), ("Ann", " ann. ", True), ("3.5", "35", False), ("-5", "5", False), ("a b", "a  b!", True),
])  # fmt: skip
def test_answers_are_alike_but_for_case_spaces_commas_and_what_stands_around(one, other, same) -> None:
    assert alike(one, other) == same == alike(other, one)


# --- what people want ------------------------------------------------------------------------------------------------


def test_a_lesson_that_was_given_up_is_practised_again_when_asked_for(world: TaughtWorld) -> None:
    world.want("dull")
    world.teach()
    world.knows = {weights: {**knows, "dull": ("yes", 2)} for weights, knows in world.knows.items()}
    world.give(inp.LessonRequested("L1", "me"))
    begun = world.of(ev.LessonBegun)[-1]
    assert (begun.stage, begun.why) == (Stage.TESTING, "requested")
    world.teach()
    assert world.of(ev.LessonGivenUp)[-1].steps == 48, "with a budget of its own"


def test_requests_that_change_nothing(world: TaughtWorld) -> None:
    old = world.want("who is x", "Ann")
    assert world.give(inp.LessonRequested(old, "me")) == [], "it is under way"
    assert world.give(inp.LessonRequested("L9", "me")) == [] == world.give(inp.LessonUnwanted("L9", "me"))
    world.teach()
    world.want("who is x", "Bob")
    world.teach()
    assert world.give(inp.LessonRequested(old, "me")) == [], "it was replaced"


def test_a_lesson_that_lost_its_place_is_not_practised_again(world: TaughtWorld) -> None:
    first = world.want("dull")
    world.teach()
    second = world.want("dull", "no")
    assert world.give(inp.LessonRequested(first, "me")) == [] or world.states()[second] == "practising"
    world.teach(1)
    assert world.give(inp.LessonRequested(first, "me")) == [], "another lesson answers its question"


def test_a_lesson_is_forgotten_with_its_steps(world: TaughtWorld) -> None:
    world.lines("a")
    world.settle()
    before = world.memory
    world.want("who is x", "Ann")
    world.teach()
    world.give(inp.LessonUnwanted("L1", "me"))
    world.teach()
    assert world.state.lessons.lessons["L1"].reason == "me had lesson L1 forgotten"
    assert world.memory == before and world.says("who is x") == ""
    (forgotten,) = world.of(ev.ForgetCompleted)
    assert len(forgotten.examples) == 6 and not world.state.forgetting.wanted


def test_a_lesson_that_was_replaced_is_forgotten_and_stays_replaced(world: TaughtWorld) -> None:
    old = world.want("who is x", "Ann")
    world.teach()
    new = world.want("who is x", "Bob")
    world.teach()
    world.give(inp.LessonUnwanted(old, "me"))
    world.teach()
    assert world.states() == {old: "replaced", new: "known"} and not world.of(ev.LessonGivenUp)
    (forgotten,) = world.of(ev.ForgetCompleted)
    assert set(forgotten.examples) == set(world.state.lessons.lessons[old].examples)


def test_a_lesson_that_is_forgotten_under_way_withdraws_what_waits(world: TaughtWorld) -> None:
    before = world.memory
    world.want("who is x", "Ann")
    while len(world.of(ev.LessonPrepared)) < 2:
        world.settle()
        world.call()
    world.give(inp.LessonUnwanted("L1", "me"))
    world.teach()
    assert world.memory == before and world.state.lessons.open is None and not world.state.intake.pending


@pytest.mark.parametrize("nightly", [True, False])
def test_all_known_lessons_are_asked_again_when_a_night_begins(nightly: bool) -> None:
    night = ScheduleSettings(nightly="02:00-05:00", zone="Europe/Berlin")
    world = TaughtWorld(msgspec.structs.replace(teaching(nightly=nightly, ask_again=()), schedule=night)).up()
    world.want("who is x", "Ann")
    world.want("old", "known")
    world.teach()
    assert set(world.states().values()) == {"known"}
    opens_ns = world.now + 10 * 3600 * 10**9
    world.give(inp.NightKnown(opens_ns, opens_ns + 3 * 3600 * 10**9, "02:00-05:00", "Europe/Berlin"))
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
