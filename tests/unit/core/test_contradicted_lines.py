"""A lesson finds the learned lines that answer its question otherwise: they are replaced by it."""

import pytest
from property.test_continuation import archived
from property.test_core_properties import folded
from support.taught_world import TaughtWorld, teaching, worded
from support.world import changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import carried_state
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.state import Lesson
from apollod.core.rules import rescoring as rescoring_status
from apollod.core.rules.intake.accepting import again_id

ASKED = "who is x"


def up() -> TaughtWorld:
    """A world that scores learned lines again; what is called `weak` hardly moves."""
    world = TaughtWorld(changed(teaching(), rescore=8)).up()
    world.losses, world.after = {"weak": 2.0}, {"weak": 1.9}
    return world


def line(world: TaughtWorld, example: str, answer: str, asks: str = ASKED, tier: ev.Tier = "bulk") -> None:
    """Give it, and have it learned and scored again."""
    world.answers[example] = answer
    one = inp.Line(number=1, example=example, record=b"{}", question=asks)
    batch = inp.Batch(f"f{len(world.journal)}", "/f", 1, 1, (one,), tier=tier)
    world.give(inp.LinesRead(batch, frozenset()))
    for _ in range(5):
        world.settle()
        world.pass_time(70)


def teach(world: TaughtWorld, answer: str = "Ann") -> Lesson:
    lesson = world.want(ASKED, answer)
    world.teach()
    return world.state.lessons.lessons[lesson]


def replaced(world: TaughtWorld) -> list[tuple[str, str, str]]:
    return [(one.example, one.lesson, one.answer) for one in world.of(ev.ExampleReplaced)]


def test_lines_that_answer_otherwise_are_replaced_and_their_answers_have_to_be_gone():
    world = up()
    line(world, "a", "Bob")
    line(world, "same", "Ann")
    line(world, "another", "Bob", asks="who is y")
    lesson = teach(world)
    line(world, "later", "Bob")
    assert replaced(world) == [("a", lesson.id, "Bob")] and lesson.state == "known"
    assert world.of(ev.ExampleReplaced)[0].reason == f"lesson {lesson.id} has another answer"
    assert lesson.not_these == ("Bob",) and all(
        one.not_these == ("Bob",) for one in world.answered if hasattr(one, "not_these")
    )
    assert world.state.lessons.replaced == {"a": lesson.id} and folded(world) == world.state


def test_an_answer_that_cannot_be_told_apart_is_not_looked_for():
    world = up()
    line(world, "a", "")
    lesson = teach(world)
    assert replaced(world) == [("a", lesson.id, "")] and lesson.not_these == ()


@pytest.mark.parametrize(
    ("first", "tier", "taught"), [("bulk", "bulk", 0), ("bulk", "direct", 1), ("direct", "direct", 1)]
)
def test_what_was_replaced_is_taught_again_only_by_whoever_gives_it_directly(first, tier, taught):
    world = up()
    line(world, "weak", "Bob", tier=first)
    assert rescoring_status.status(world.state).weak == 1
    teach(world)
    assert rescoring_status.status(world.state).weak == 0 and "weak" not in world.state.rescoring.waiting
    accepted = len(world.of(ev.ExampleAccepted))
    line(world, "weak", "Bob", tier=tier)
    again = [one for one in world.of(ev.ExampleAccepted)[accepted:] if one.again_of]
    assert [(one.example, one.again_of) for one in again] == ([(again_id("weak", 1), "weak")] if taught else [])


def test_also_where_it_was_learned_well():
    world = up()
    line(world, "a", "Bob", tier="direct")
    line(world, "a", "Bob", tier="direct")
    assert len(world.of(ev.ExampleAccepted)) == 1, "there is nothing to be taught"
    teach(world)
    line(world, "a", "Bob", tier="direct")
    assert [one.again_of for one in world.of(ev.ExampleAccepted) if one.question] == ["", "a"]


def test_a_line_that_was_weak_is_taught_again_where_no_lesson_replaced_it():
    world = up()
    line(world, "weak", "Bob")
    line(world, "weak", "Bob")
    assert [one.again_of for one in world.of(ev.ExampleAccepted)] == ["", "weak"]


def test_a_step_that_is_repeated_has_what_was_replaced_not_scored_again():
    world = up()
    line(world, "b", "no question", asks="")
    line(world, "weak", "Bob")
    teach(world)
    world.give(inp.ForgetRequested(("b",), "p", ""))
    for _ in range(5):
        world.settle()
        world.pass_time(70)
    assert [one for one in world.of(ev.StepStarted) if one.again_of and one.example == "weak"]
    assert "weak" not in {*world.state.rescoring.waiting, *world.state.rescoring.gains}


def test_what_waits_is_not_learned_any_more_unless_it_has_a_lesson_of_its_own():
    world = up()
    lesson = world.want(ASKED, "Ann")
    world.lines("a", "b")
    given = Given(question="who is y", answer="Bob")
    world.record(ev.LessonGiven("L2", given, "p", example="b"))
    found = (inp.Contradicted("a", "Bob"), inp.Contradicted("b", "Bob"))
    world.give(inp.LessonWorded(lesson, "told", worded(Given(question=ASKED, answer="Ann")), contradicted=found))
    (withdrawn,) = world.of(ev.ExampleWithdrawn)
    assert (withdrawn.examples, withdrawn.by) == (("a",), lesson) and not replaced(world)
    world.settle()
    learned = {example for one in world.of(ev.StepStarted) for example in ev.all_examples(one)}
    assert "a" not in learned and "b" in learned


def test_who_takes_a_lesson_back_has_the_line_as_it_was():
    world = up()
    line(world, "weak", "Bob")
    lesson = teach(world)
    world.give(inp.LessonUnwanted(lesson.id, "p"))
    world.teach()
    assert not world.state.lessons.replaced
    line(world, "weak", "Bob", tier="direct")
    assert [one.again_of for one in world.of(ev.ExampleAccepted) if one.question] == ["", "weak"]


def test_a_lesson_that_is_not_taught_replaces_nothing():
    world = up()
    first = teach(world)
    line(world, "a", "Bob")
    world.want(f"{ASKED}?", "Ann")
    world.teach()
    assert world.states() == {first.id: "known", "L2": "given up"} and not replaced(world)


def test_a_journal_that_goes_on_knows_what_was_replaced():
    world = up()
    line(world, "a", "Bob")
    teach(world)
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    other = archived(world)
    assert other.state.lessons.replaced == world.state.lessons.replaced == {"a": "L1"}
    assert carried_state(other.state).lessons == carried_state(world.state).lessons
