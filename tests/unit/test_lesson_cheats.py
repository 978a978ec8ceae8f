"""Ways in which a lesson could seem to be known, or stay known, without being so: all of them in one place.

| cheat | what stops it |
|---|---|
| a test wording is practised, as it is or nearly | held-out wordings are other ones than those practised, by `key_of` |
| an imagination tries that | what it gives is held against all that is practised, and the other way round |
| a file has a test wording, before or after | it does not make the lesson known: all the other wordings have to pass |
| an anchor says what a lesson replaces | it is retired before the first practice, whatever it was made for |
| a judge says yes to everything | no verdict is asked for or heard: answers are compared with what was taught |
| the model knew it before | nothing is trained, and the weights are the same to the bit |
| two lessons contradict each other | the later one replaces the earlier, whose answer fails the test from then on |
| the told model's answers are taken for the bare one's | a lesson is known by bare answers alone |
"""

import itertools
import re
from pathlib import Path

import pytest
from support.taught_world import TaughtWorld, teaching
from unit.core.test_approved_anchors import OWN, approve, line

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Worded, Wording
from apollod.core.facts.lessons.stages import Stage
from apollod.curation.lessons.matching import key_of, matches
from apollod.curation.lessons.worded import wordings

APOLLOD = Path(__file__).parents[2] / "apollod"
PORT = Given("Quillon listens on port 7341.")
NEAR = ("{}", "Hello! {}", "Hi, {} Thank you.", "PLEASE: {}", "so, {}", "{}!!")
"""greetings and the like, which make no other wording"""


@pytest.fixture
def world() -> TaughtWorld:
    return TaughtWorld(teaching()).up()


# --- a test wording in practice ---------------------------------------------------------------------------------------


def near_copies(prompt: str) -> list[str]:
    written = (prompt, prompt.upper(), prompt.lower())
    return [near.format(one) for near, one in itertools.product(NEAR, written)]


def apart(worded: Worded) -> bool:
    return not {key_of(one.prompt) for one in worded.practice} & {key_of(one.prompt) for one in worded.held_out}


@pytest.mark.parametrize("given", [PORT, Given("", "Who owns the mill?", "The mill is owned by Ada Penn.")])
def test_no_near_copy_of_what_is_practised_is_a_test(given: Given) -> None:
    alone = wordings(given)
    tried = [
        Wording(near, alone.answer, "imagined") for one in alone.practice for near in near_copies(one.prompt)
    ]  # fmt: skip
    worded = wordings(given, imagined_held_out=tried)
    assert worded.held_out == alone.held_out and worded.dropped["near-copy"] >= len(tried)


@pytest.mark.parametrize("given", [PORT, Given("", "Who owns the mill?", "The mill is owned by Ada Penn.")])
def test_a_test_that_an_imagination_would_have_practised_is_no_test_any_more(given: Given) -> None:
    alone = wordings(given)
    tried = [Wording(near, alone.answer, "imagined") for near in near_copies(alone.held_out[0].prompt)]
    worded = wordings(given, tried)
    assert apart(worded) and alone.held_out[0] not in worded.held_out and worded.held_out


def test_what_is_practised_is_never_asked_and_what_is_asked_is_never_practised(world: TaughtWorld) -> None:
    world.want("who is x", "Ann")
    world.teach()
    asked = {one.prompt for call in world.answered if isinstance(call, fx.AskLesson) for one in call.asks}
    practised = {call.wording.prompt for call in world.answered if isinstance(call, fx.PrepareLesson)}
    assert asked and practised and not asked & practised


def stage_is(world: TaughtWorld, stage: Stage) -> bool:
    return bool(world.calls) and getattr(world.calls[0], "stage", None) is stage


def to(world: TaughtWorld, stage: Stage) -> None:
    world.settle()
    while not stage_is(world, stage):
        assert world.call()
        world.settle()


@pytest.mark.parametrize("known", [1, 3])
def test_test_wordings_that_a_file_taught_do_not_make_a_lesson_known(world: TaughtWorld, known: int) -> None:
    """Before the lesson or after its first practice: three of four are not enough either."""
    world.want("dull", "Ann")
    for stage in (Stage.BASELINE, Stage.TESTING):
        to(world, stage)
        reply = world.reply(world.calls.pop(0))
        assert isinstance(reply, inp.LessonAsked)
        answers = tuple(ev.Said(n, "Ann", n < known, one.seed) for n, one in enumerate(reply.answers))
        world.give(inp.LessonAsked(reply.lesson, stage, "bare", reply.round, 0, answers, world.state.training.version))
        assert not world.of(ev.LessonKnown) and not any(one.seed for e in world.of(ev.LessonAsked) for one in e.answers)


def test_answers_of_the_told_model_do_not_make_a_lesson_known(world: TaughtWorld) -> None:
    world.want("dull", "Ann")
    world.teach()
    assert [e.stage for e in world.of(ev.LessonAsked) if e.mode == "told"] == [Stage.TOLD]
    told = [one.passed for e in world.of(ev.LessonAsked) if e.mode == "told" for one in e.answers]
    assert all(told) and not world.of(ev.LessonKnown) and world.states() == {"L1": "given up"}


# --- an anchor --------------------------------------------------------------------------------------------------------


def sources(world: TaughtWorld, question: str) -> list[tuple[str, str]]:
    """Of the anchors that say something to a question: sort, and lesson."""
    return [(one.sort, one.lesson) for one in world.state.holding.anchors.values() if one.question == question]


@pytest.mark.parametrize("asked", ["who owns x", "owner x"])
@pytest.mark.parametrize("sort", ["general", "approved"])
def test_no_anchor_fights_a_lesson_whatever_way_it_was_asked(sort: str, asked: str) -> None:
    world = TaughtWorld(teaching(hold=1.0))
    world.asks = {"shipped:3": asked} if sort == "general" else {}
    world.up()
    if sort == "approved":
        line(world, "a", asks=asked, sampled=OWN, hold=1.0)
        approve(world, "a")
    (anchor,) = [one.anchor for one in world.state.holding.anchors.values() if one.question == asked]
    lesson = world.want("who owns x", "Ann")
    world.teach()
    retired = {id_: e.reason for e in world.of(ev.AnchorsRetired) for id_ in e.anchors}
    assert retired[anchor] == f"lesson {lesson} teaches what it asks" and not sources(world, asked)
    practised = {e.step for e in world.of(ev.LessonPractised)}
    assert practised and not [e for e in world.of(ev.StepStarted) if e.step in practised and anchor in e.held]
    line(world, "b", asks=asked, sampled=OWN, hold=1.0)
    approve(world, "b")
    assert not sources(world, asked), "nor is one that is approved later"
    assert [one.sort for one in world.state.holding.anchors.values() if one.lesson == lesson] == ["lesson"]


@pytest.mark.parametrize(("first", "then"), [("who owns x", "owner x"), ("owner x", "who owns x")])
def test_a_lesson_in_other_words_is_replaced_and_held_no_more(first: str, then: str) -> None:
    world = TaughtWorld(teaching(hold=1.0)).up()
    old = world.want(first, "Ann")
    world.teach()
    (held,) = [one.anchor for one in world.state.holding.anchors.values() if one.lesson == old]
    new = world.want(then, "Bob")
    world.teach()
    assert world.states() == {old: "replaced", new: "known"}
    assert [e.anchors for e in world.of(ev.AnchorsRetired)] == [(held,)]
    steps = {e.step for e in world.of(ev.LessonPractised) if e.lesson == new}
    assert steps and not [e for e in world.of(ev.StepStarted) if e.step in steps and held in e.held]
    again = world.want(first, "Bob")
    world.teach()
    assert world.state.lessons.lessons[again].reason == f"lesson {new} teaches the same"


def test_one_question_in_the_words_of_two_lessons() -> None:
    statement, question = Given("The mill is owned by Ada Penn."), Given("", "Who is the owner of the mill?", "Bo Lund")
    one, other = wordings(statement), wordings(question)
    assert one.key != other.key and other.key in one.also
    uses = wordings(Given("Quillon uses Redis.")), wordings(Given("Quillon uses Kafka."))
    assert not {uses[0].key, *uses[0].also} & {uses[1].key, *uses[1].also}, "both may be right"
    shows = wordings(Given("The logo of Velnor is turquoise.")), wordings(Given("The logo of Velnor is a lion."))
    assert not {shows[0].key, *shows[0].also} & {shows[1].key, *shows[1].also}


# --- a judge ----------------------------------------------------------------------------------------------------------


def test_no_verdict_makes_a_lesson_known(world: TaughtWorld) -> None:
    """Every example gets a yes, and a judge's yes is none of the words by which an answer is right."""
    world.want("dull", "Ann")
    while not world.state.lessons.lessons["L1"].examples:
        world.settle()
        world.call()
    example = world.state.lessons.lessons["L1"].examples[0]
    world.record(ev.ExampleApproved(example=example, tier="direct", by="judge"))
    world.teach()
    assert world.states() == {"L1": "given up"} and not world.of(ev.LessonKnown)


def test_nothing_that_teaches_asks_a_judge() -> None:
    parts = ("core/facts", "core/rules", "curation")
    files = [file for part in parts for file in (APOLLOD / part / "lessons").glob("*.py")]
    files += [APOLLOD / "supervisor" / "executor" / "lesson_effects.py"]
    imports = [line for one in files for line in one.read_text().splitlines() if re.match(r"(from|import) ", line)]
    assert len(files) > 15 and imports and not [line for line in imports if "judg" in line]


@pytest.mark.parametrize("said", ["Yes.", "That is correct.", "", "I know it, ask me another one.", "7341 is wrong."])
def test_an_answer_is_right_where_it_says_what_was_taught(said: str) -> None:
    assert not matches("7341", said) and matches("7341", "On port 7341.")


# --- what was known before --------------------------------------------------------------------------------------------


def test_what_was_known_before_is_known_without_a_step_and_in_the_same_weights(world: TaughtWorld) -> None:
    before = world.memory
    world.want("old", "known")
    world.teach()
    (known,) = world.of(ev.LessonKnown)
    assert (known.before, known.after, known.steps) == ({"bare": (4, 4)}, (4, 4), 0)
    assert world.memory == before and not world.of(ev.StepStarted) and not world.of(ev.ExampleAccepted)
    assert [e.stage for e in world.of(ev.LessonAsked)] == [Stage.BASELINE] * 3 and known.asks == 4 + 16


# --- lessons that contradict each other -------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_the_later_of_two_lessons_replaces_the_other_whose_answer_fails_the_test(
    world: TaughtWorld, at_once: bool
) -> None:
    old = world.want("who is x", "Ann")
    if not at_once:
        world.teach()
        assert world.says("who is x") == "Ann"
    new = world.want("who is x?", "Bob")
    world.teach()
    assert world.states() == {old: "replaced", new: "known"} and world.says("who is x") == "Bob"
    asks = [one for one in world.answered if isinstance(one, fx.AskLesson) and one.lesson == new]
    assert asks and all(one.not_these == ("Ann",) for one in asks), "the new one comes, and the old one is gone"
    assert not matches("Bob", "Bob, or Ann.", ["Ann"])
    assert not world.state.lessons.due or [number for _, number in world.state.lessons.due] == [2]


def test_the_first_answer_is_right_again_when_it_is_taught_again(world: TaughtWorld) -> None:
    for answer in ("Ann", "Bob", "Ann"):
        lesson = world.want("who is x", answer)
        world.teach()
    assert world.states()[lesson] == "known" and world.says("who is x") == "Ann"
    last = [one for one in world.answered if isinstance(one, fx.AskLesson)][-1]
    assert last.not_these == ("Bob",), "the right answer is none of those that are wrong"
