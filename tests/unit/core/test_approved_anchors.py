"""Approved answers of the served model are held, as long as nothing is taught or decided otherwise."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.test_continuation import archived
from support.effort import draws
from support.taught_world import TaughtWorld, teaching, worded

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import carried_state
from apollod.core.facts.holding import Anchor
from apollod.core.facts.intake.events import Given
from apollod.core.facts.intake.inputs import Batch, Evidence, Line, Response
from apollod.core.fold import fold
from apollod.core.rules.holding.fold import APPROVED_MAX, GIVEN_MAX
from apollod.core.shared.missing_anchors import SHIPPED
from apollod.core.state import State

ASKED = "who is x"
OWN, ANOTHERS = ev.Sampled("r1", (1, 2), (3,)), ev.Sampled("r1", (), (3,))


def up(**changes: object) -> TaughtWorld:
    return TaughtWorld(teaching(hold=1.0, **changes)).up()


def line(
    world: TaughtWorld, example: str, asks: str = ASKED, sampled: ev.Sampled = OWN, hold: float = 0.0,
    evidence: tuple[Evidence, ...] = (),
) -> None:  # fmt: skip
    """A line of a file, and all that follows by itself."""
    one = Line(
        number=1, example=example, record=b"{}", responses=(Response(f"k{example}", 0, sampled),), question=asks,
        evidence=evidence, of_log=True,
    )  # fmt: skip
    world.give(inp.LinesRead(Batch(f"f-{example}", f"/{example}", 1, 1, (one,), hold=hold), frozenset()))
    world.settle()


def approve(world: TaughtWorld, example: str) -> None:
    world.give(inp.DecisionsGiven((inp.Decision(example, "approve"),), "p"))
    world.settle()


def approved(world: TaughtWorld) -> dict[str, str]:
    """Examples of approved answers that are held, and what they were asked."""
    own = world.state.holding.anchors.values()
    assert all(one.wanted == f"approved:{one.example}" for one in own if one.sort == "approved")
    return {one.example: one.question for one in own if one.sort == "approved"}


def retired(world: TaughtWorld) -> list[str]:
    return [one.reason for one in world.of(ev.AnchorsRetired)]


def test_an_answer_that_a_person_liked_is_held_once_it_was_learned():
    world = up()
    before = world.memory
    world.rate("r1", "good", question=ASKED)
    world.settle()
    assert approved(world) == {"good r1": ASKED}
    (frozen,) = [one for one in world.of(ev.AnchorFrozen) if one.sort == "approved"]
    assert frozen.example == "good r1" and frozen.anchor == f"approved:good r1 of {world.memory}" != before
    kinds = world.kinds()
    assert kinds.index("step.completed") < len(kinds) - 1 - kinds[::-1].index("anchor.frozen")
    world.lines(*(f"line {n}" for n in range(SHIPPED)))
    world.settle()
    assert any(frozen.anchor in one.held for one in world.of(ev.StepStarted))


@pytest.mark.parametrize("who", ["person", "judge", "evidence"])
def test_whoever_approves_it(who):
    world = up()
    if who == "evidence":
        line(world, "a", evidence=(Evidence("rating", "good", 1.0, "ka"),))
    else:
        line(world, "a", hold=1.0)
        assert not approved(world), "a held one is not approved"
    if who == "person":
        approve(world, "a")
    if who == "judge":
        world.record(ev.ExampleApproved("a", "bulk", by="judge"))
        world = world.crash_and_return()  # who begins anew has the example tokenised
        world.settle()
    assert approved(world) == {"a": ASKED}


def test_only_answers_of_the_served_model_to_short_questions_that_are_approved():
    world = up()
    line(world, "not approved")
    line(world, "anothers", sampled=ANOTHERS, hold=1.0)
    line(world, "no question", asks="", hold=1.0)
    line(world, "weak", asks="q", evidence=(Evidence("thanks", "good", 0.2, "kweak"),))
    for one in ("anothers", "no question"):
        approve(world, one)
    world.rate("r2", "bad", "better", question="who is y")
    world.settle()
    assert not approved(world) and not world.state.holding.approved


@pytest.mark.parametrize("others", ["", "long "])
def test_steps_do_not_wait_for_it_and_it_comes_when_nothing_waits(others):
    """Also where there are no other anchors, for the first few of which they would."""
    world = TaughtWorld(teaching(hold=1.0))
    world.anchors = others
    world.up()
    world.anchors = ""
    assert bool(world.state.holding.anchors) == (not others)
    line(world, "a", hold=1.0)
    world.lines("b", "c")
    world.give(inp.DecisionsGiven((inp.Decision("a", "approve"),), "p"))
    while world.state.queued:
        assert not approved(world)
        world.answer()
    world.settle()
    assert approved(world) == {"a": ASKED}


def test_a_prompt_that_ships_is_not_frozen_where_a_lesson_teaches_what_it_asks():
    world = TaughtWorld(teaching(hold=1.0))
    world.asks = {"shipped:3": ASKED, "shipped:4": "who is y"}
    world.start()
    world.record(ev.LessonGiven("L1", Given(question=ASKED, answer="Ann"), "p"))
    world.record(ev.LessonBegun("L1", "wording", "given"))
    world.record(ev.LessonWorded("L1", "told", worded(Given(question=ASKED, answer="Ann"))))
    world.settle()
    world.engine_up()
    world.settle()
    (failed,) = world.of(ev.AnchorFailed)
    assert failed.wanted == "shipped:3" and "lesson L1" in failed.reason and failed.gives_up == "one"
    assert "who is y" in world.state.holding.by_question and ASKED not in world.state.holding.by_question


def test_a_line_that_answers_the_question_otherwise_ends_it():
    world = up()
    world.asks = {"shipped:3": "who is y"}
    world.rate("r1", "good", question=ASKED)
    world.settle()
    line(world, "other", sampled=ev.Sampled())
    assert not approved(world) and retired(world) == ["example other answers what it asks"]
    line(world, "b", hold=1.0)
    line(world, "c", sampled=ev.Sampled())
    approve(world, "b")
    assert not approved(world), "the line came after the answer that was approved later"


def test_the_same_line_taught_again_does_not_end_it():
    world = up()
    world.rate("r1", "good", question=ASKED)
    world.settle()
    accepted = world.of(ev.ExampleAccepted)[-1]
    world.record(msgspec.structs.replace(accepted, example="again", again_of=accepted.example))
    assert approved(world) == {"good r1": ASKED}


@pytest.mark.parametrize("how", ["bad", "forget", "rollback", "hold", "distrust"])
def test_what_is_taken_back_is_not_held(how):
    world = up()
    world.rate("r1", "good", question=ASKED)
    world.settle()
    assert approved(world)
    match how:
        case "bad":
            world.rate("r1", "bad")
        case "forget":
            world.give(inp.ForgetRequested(("good r1",), "p", ""))
        case "rollback":
            world.give(inp.RollbackRequested(0, "p"))
        case "hold":
            world.record(ev.ExampleHeld("good r1", "direct", "p holds it"))
        case "distrust":
            world.record(ev.JudgeDistrusted("m", "doubt", learned=("good r1",)))
    assert not approved(world) or how == "rollback", "at once, and not when the weights are there"
    world.settle()
    assert not approved(world) and retired(world) == ["its example was taken back"]


def test_the_newest_are_held_and_older_ones_retired():
    world = up()
    for n in range(APPROVED_MAX + 2):
        world.rate(f"r{n}", "good", question=f"who is {n}")
        world.settle()
    assert list(approved(world)) == [f"good r{n}" for n in range(2, APPROVED_MAX + 2)]
    assert retired(world) == [f"{APPROVED_MAX} newer answers were approved"] * 2


def test_what_was_approved_and_is_of_no_use_is_left_out_and_is_no_trouble_of_holding():
    world = up()
    line(world, "a", hold=1.0)
    world.give(inp.DecisionsGiven((inp.Decision("a", "approve"),), "p"))
    world.give(inp.AnchorCallFailed("approved:a", "answer", "a secret"))
    world.settle()
    assert not approved(world) and not world.state.holding.approved and not world.state.holding.error


def test_a_journal_that_goes_on_holds_the_same():
    world = up()
    line(world, "a", hold=1.0)
    approve(world, "a")
    line(world, "b", asks="who is y", hold=1.0)
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    other = archived(world)
    assert carried_state(other.state).holding == carried_state(world.state).holding
    assert [one.question for one in other.state.holding.anchors.values() if one.sort == "approved"] == [ASKED]


Said = tuple[str, int]


@draws(150, 1500)
@given(st.lists(st.tuples(st.sampled_from(["say", "approve", "freeze", "teach", "take back", "retire"]),
                          st.integers(0, 90)), max_size=400))  # fmt: skip
def test_the_newest_approved_answers_no_two_to_one_question_and_none_that_is_taught(life):
    """Folds of random lives: at most `APPROVED_MAX` are held and as many wait; `life`: what happens to a question."""
    state, seq, taught, examples = State(), 0, set(), dict[int, str]()
    order = list[str]()

    def happens(event: ev.Event) -> None:
        nonlocal seq
        seq += 1
        fold(state, ev.Recorded(seq, seq, event))

    own = state.holding
    for what, n in life:
        question = f"q{n}"
        match what:
            case "say":
                examples[n] = f"e{seq}"
                record = msgspec.Raw(b"{}")
                happens(ev.ExampleAccepted(examples[n], record, "f", 1, sampled=(OWN,), question=question))
                assert own.given[question] == examples[n] and question not in own.approved | own.by_question
            case "approve" if n in examples:
                happens(ev.FeedbackGiven("r", "good", "p", example=examples[n]))
                if question not in taught and question not in own.by_question:
                    assert list(own.approved)[-1] == question or question in own.approved
            case "freeze" if own.approved:
                asked, example = next(iter(own.approved.items()))
                id_ = f"a{seq}"
                order.append(id_)
                happens(ev.AnchorFrozen(
                    id_, msgspec.Raw(b"{}"), "t", "approved", f"approved:{example}", question=asked, example=example
                ))  # fmt: skip
                assert own.by_question[asked] == id_ and asked not in own.approved
            case "teach" if question not in taught:
                taught.add(question)
                lesson = f"L{len(taught)}"
                happens(ev.LessonGiven(lesson, Given(question=question, answer="a"), "p"))
                happens(ev.LessonWorded(lesson, "told", worded(Given(question=question, answer="a"))))
                assert question not in own.by_question and question not in own.approved
            case "take back" if n in examples:
                happens(ev.ExampleDeclined(examples[n], "bulk", "p"))
                assert examples[n] not in {one.example for one in own.anchors.values()} | set(own.approved.values())
            case "retire" if own.stale:
                happens(ev.AnchorsRetired(tuple(own.stale), "r"))
                assert not own.stale
        anchors: list[Anchor] = list(own.anchors.values())
        assert len(anchors) <= APPROVED_MAX and len(own.approved) <= APPROVED_MAX and len(own.given) <= GIVEN_MAX
        assert {one.question: one.anchor for one in anchors} == own.by_question and len(own.by_question) == len(anchors)
        assert not own.by_question.keys() & (taught | own.approved.keys()) and not own.stale.keys() & own.anchors.keys()
        assert [one.anchor for one in anchors] == [one for one in order if one in own.anchors], "the newest one last"
