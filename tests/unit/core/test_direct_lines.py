"""Lines that are given directly and become lessons: when they are learned, and what takes them back."""

import msgspec
import pytest
from support.taught_world import TaughtWorld, teaching

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Given
from apollod.core.facts.intake.evidence import Evidence
from apollod.core.facts.lessons.stages import Stage
from apollod.core.inputs import Batch, Line
from apollod.core.rules.lessons.direct_lines import WAITING_MAX
from apollod.core.settings import ScheduleSettings


@pytest.fixture
def world() -> TaughtWorld:
    return TaughtWorld(teaching()).up()


def line(question: str, answer: str = "yes", **more: object) -> Line:
    """`plain`: no lesson can be made of it."""
    lesson = None if question.startswith("plain") else Given(question=question, answer=answer)
    return Line(1, f"line {question} {answer}", b"{}", lesson=lesson, **more)  # type: ignore[arg-type]


def submit(world: TaughtWorld, *lines: Line | str, tier: ev.Tier = "direct") -> list[ev.Event]:
    given = tuple(line(one) if isinstance(one, str) else one for one in lines)
    return world.give(inp.LinesRead(Batch("ctl", "", 0, len(given), given, tracked=False, tier=tier), frozenset()))


def learned(world: TaughtWorld) -> list[str]:
    """Lines in the order of their steps, practices left out."""
    steps = [example for one in world.of(ev.StepCompleted) for example in ev.all_examples(one)]
    return [example for example in steps if example.startswith("line")]


def looks(world: TaughtWorld) -> list[tuple[str, bool]]:
    return [(one.example.split()[1], one.known) for one in world.of(ev.ExampleLooked)]


def until(world: TaughtWorld, *stages: Stage) -> None:
    """Calls are answered until the lesson under way is in one of these stages."""
    for _ in range(100):
        world.settle()
        if (course := world.state.lessons.open) is not None and course.stage in stages:
            return
        world.call()
    raise AssertionError(world.states())


# --- what a first look finds ------------------------------------------------------------------------------------------


def test_a_line_waits_for_the_first_look_of_its_lesson_and_is_learned_then(world: TaughtWorld) -> None:
    events = submit(world, "who", "plain")
    assert [type(one) for one in events] == [ev.ExampleAccepted, ev.ExampleAccepted, ev.LessonGiven]
    assert events[0].lesson is None, "its lesson says what it teaches"
    until(world, Stage.TOLD)
    assert learned(world) == ["line plain yes"] and world.state.queued == 1 and not world.state.intake.pending
    world.teach()
    (given,), (known,) = world.of(ev.LessonGiven), world.of(ev.LessonKnown)
    assert (given.lesson, given.example, given.by, given.given.question) == ("L1", "line who yes", "ctl", "who")
    assert looks(world) == [("who", False)] and learned(world) == ["line plain yes", "line who yes"]
    assert world.of(ev.StepCompleted)[1].example == "line who yes", "before its lesson is practised"
    assert known.steps and world.state.lessons.lessons["L1"].examples[0] == "line who yes"


def test_what_the_model_knows_is_settled_without_a_step(world: TaughtWorld) -> None:
    submit(world, line("old", "known"))
    world.teach()
    assert looks(world) == [("old", True)] and world.states() == {"L1": "known"}
    assert not world.of(ev.StepStarted) and not world.state.queued and world.state.training.counts.skipped == 1
    assert world.of(ev.ExampleLooked)[0].reason == "the model knows it, as lesson L1 found"


@pytest.mark.parametrize("tier", ["bulk", "dream"])
def test_a_line_of_another_tier_is_learned_as_it_is(world: TaughtWorld, tier: ev.Tier) -> None:
    submit(world, "plain", tier=tier)
    world.teach()
    assert not world.of(ev.LessonGiven) and learned(world) == ["line plain yes"]


def test_what_cannot_be_told_is_learned_once(world: TaughtWorld) -> None:
    submit(world, "odd")
    world.teach()
    assert world.states() == {"L1": "given up"} and learned(world) == ["line odd yes"]
    (looked,) = world.of(ev.ExampleLooked)
    assert not looked.known and "learned once: lesson L1 was given up: the model cannot answer it even" in looked.reason


@pytest.mark.parametrize("cause", ["endpoint", "nonsense"])
@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_line_is_held_up_for_one_failed_attempt_at_most(world: TaughtWorld, cause: ev.Cause, answers: int) -> None:
    submit(world, "who", "where")
    for _ in range(answers):
        world.settle()
        world.call()
    world.settle()
    world.fail(cause, "501 Not Implemented")
    world.settle()
    reason = world.state.lessons.lessons["L1"].reason
    assert reason == f"{['wording', 'baseline', 'told'][answers]} failed: 501 Not Implemented"
    both = ["line who yes", "line where yes"]
    assert learned(world) == (both if cause == "endpoint" else both[:1]), "the other one would not be answered either"


def test_a_line_is_not_held_up_by_a_lesson_whose_question_is_not_answered(world: TaughtWorld) -> None:
    world.want("given")
    world.settle()
    submit(world, "who")
    world.fail("endpoint", "it is down")
    world.settle()
    assert learned(world) == ["line who yes"] and world.states() == {"L1": "practising", "L2": "given up"}
    submit(world, "where")
    world.settle()
    (left_out,) = world.of(ev.LessonsLeftOut)
    assert left_out.examples == ("line where yes",) and "lesson L1 is not answered (it is down)" in left_out.reason
    assert learned(world) == ["line who yes", "line where yes"]


def test_first_looks_come_before_practice(world: TaughtWorld) -> None:
    world.want("old", "known")
    world.want("given")
    submit(world, "a", "b", "odd")
    while world.state.intake.first_looks:
        world.settle()
        world.call()
    assert not world.of(ev.LessonPrepared) and looks(world) == [("a", False), ("b", False), ("odd", False)]
    world.teach()
    assert world.states() == {"L1": "known", "L2": "known", "L3": "known", "L4": "known", "L5": "given up"}
    begun = [(one.lesson, one.stage) for one in world.of(ev.LessonBegun)]
    first = [(f"L{n}", Stage.WORDING) for n in (1, 3, 4, 5)]
    assert begun == [*first, ("L2", Stage.WORDING), ("L3", Stage.TESTING), ("L4", Stage.TESTING)]
    assert learned(world) == ["line a yes", "line b yes", "line odd yes"]


def test_so_many_lessons_wait_and_no_more(world: TaughtWorld) -> None:
    world.give(inp.PauseRequested("p"))
    submit(world, *(f"odd{n}" for n in range(WAITING_MAX + 2)))
    submit(world, "late")
    assert [one.examples for one in world.of(ev.LessonsLeftOut)] == [
        (f"line odd{WAITING_MAX} yes", f"line odd{WAITING_MAX + 1} yes"), ("line late yes",)
    ]  # fmt: skip
    assert f"{WAITING_MAX} lessons wait already" in world.of(ev.LessonsLeftOut)[0].reason
    assert len(world.state.lessons.queue) == WAITING_MAX == len(world.state.intake.first_looks)
    world.give(inp.ResumeRequested("p"))
    world.teach()
    assert sorted(learned(world)) == sorted(one.example for one in world.of(ev.ExampleAccepted) if one.source == "ctl")
    assert learned(world)[0] == f"line odd{WAITING_MAX} yes" and set(world.states().values()) == {"given up"}


def test_without_the_setting_there_are_no_lessons() -> None:
    world = TaughtWorld(teaching(direct=False)).up()
    submit(world, "who")
    world.teach()
    assert not world.of(ev.LessonGiven) and learned(world) == ["line who yes"]


# --- what takes a line back -------------------------------------------------------------------------------------------


def test_a_line_that_waits_and_is_withdrawn_or_declined_takes_its_lesson_with_it(world: TaughtWorld) -> None:
    submit(world, "who", "where")
    until(world, Stage.BASELINE)
    world.give(inp.WithdrawRequested(("line who yes",), "ctl"))
    world.give(inp.DecisionsGiven((inp.Decision("line where yes", "decline"),), "ann"))
    assert world.states() == {"L1": "given up", "L2": "given up"} and not world.state.intake.first_looks
    assert world.state.lessons.lessons["L2"].reason == "ann took its line back"
    world.teach()
    assert not learned(world) and not world.of(ev.ExampleLooked)


def test_a_line_that_waits_and_is_held_is_learned_once_when_it_is_approved(world: TaughtWorld) -> None:
    submit(world, "who")
    until(world, Stage.BASELINE)
    world.give(inp.DecisionsGiven((inp.Decision("line who yes", "hold"),), "ann"))
    world.teach()
    assert world.states() == {"L1": "given up"} and not learned(world)
    world.give(inp.DecisionsGiven((inp.Decision("line who yes", "approve"),), "ann"))
    world.teach()
    assert learned(world) == ["line who yes"] and len(world.states()) == 1


def test_a_line_that_is_held_at_first_is_a_lesson_once_it_is_approved(world: TaughtWorld) -> None:
    submit(world, line("who", leak="the answer of probe p"), line("never", leak="the answer of probe q"))
    assert not world.of(ev.LessonGiven) and world.of(ev.ExampleAccepted)[0].lesson == Given(
        question="who", answer="yes"
    )
    world.give(inp.DecisionsGiven((inp.Decision("line never yes", "decline"),), "ann"))
    world.give(inp.DecisionsGiven((inp.Decision("line who yes", "approve"),), "ann"))
    assert not world.state.lessons.offered
    world.teach()
    assert world.states() == {"L1": "known"} and learned(world) == ["line who yes"]
    assert world.of(ev.LessonGiven)[0].by == "ann"


@pytest.mark.parametrize("nightly", ["", "02:00-05:00"])
def test_what_a_judge_wrote_instead_of_a_line_of_a_log_waits_for_no_look(nightly: str) -> None:
    """Held, and approved; where it waits for the night it is not learned if the model knows it."""
    settings = msgspec.structs.replace(teaching(), schedule=ScheduleSettings(nightly=nightly))
    world = TaughtWorld(settings).up()
    submit(world, line("old", "known", leak="in place of what the judge has to approve"), tier="bulk")
    world.give(inp.DecisionsGiven((inp.Decision("line old known", "approve"),), "judge"))
    assert not world.state.intake.first_looks
    world.teach()
    assert world.states() == {"L1": "known"}
    assert (learned(world), looks(world)) == (([], [("old", True)]) if nightly else (["line old known"], []))


def test_a_lesson_that_is_forgotten_takes_its_line_with_it(world: TaughtWorld) -> None:
    submit(world, "who", "where")
    until(world, Stage.BASELINE)
    world.give(inp.LessonUnwanted("L1", "ann"))
    assert world.state.intake.withdrawn.keys() == {"line who yes"} and world.states()["L1"] == "given up"
    world.teach()
    assert learned(world) == ["line where yes"]
    forgotten = world.give(inp.LessonUnwanted("L2", "ann"))
    wishes = {example for one in forgotten if isinstance(one, ev.ForgetRequested) for example in one.examples}
    assert wishes == set(world.state.lessons.lessons["L2"].examples) > {"line where yes"}


def test_a_learned_line_that_is_forgotten_takes_what_its_lesson_practised_with_it(world: TaughtWorld) -> None:
    before = world.memory
    submit(world, "who")
    world.teach()
    world.give(inp.ForgetWanted(("line who yes",), "ann", "it is wrong"))
    assert world.states() == {"L1": "given up"} and world.state.lessons.lessons["L1"].reason == "it is wrong"
    world.teach()
    assert world.memory == before and list(world.state.intake.withdrawn) == world.state.lessons.lessons["L1"].examples


# --- corrections ------------------------------------------------------------------------------------------------------


def rate(world: TaughtWorld, correction: str, formers: tuple[str, ...] = ()) -> None:
    """A correction of response r to the question "who", or its withdrawal."""
    before = next((one for one in reversed(world.of(ev.FeedbackGiven))), None)
    taught = line("who", correction) if correction else None
    world.give(inp.Rated("r", "bad", "ctl", correction, line=taught, previous=before, formers=formers))


def test_a_correction_replaces_the_lesson_of_its_question(world: TaughtWorld) -> None:
    world.want("who", "Ann")
    world.teach()
    rate(world, "Bob")
    world.teach()
    assert world.states() == {"L1": "replaced", "L2": "known"} and learned(world) == ["line who Bob"]
    assert world.state.lessons.lessons["L2"].not_these == ("Ann",)


@pytest.mark.parametrize("waits", [True, False])
def test_a_second_correction_replaces_the_lesson_of_the_first_one(world: TaughtWorld, waits: bool) -> None:
    rate(world, "Ann")
    until(world, Stage.BASELINE) if waits else world.teach()
    rate(world, "Bob", ("line who Ann",))
    assert world.states()["L1"] == "replaced" and world.of(ev.LessonReplaced)[0].by == "L2"
    world.teach()
    assert world.states() == {"L1": "replaced", "L2": "known"}
    assert world.state.lessons.lessons["L2"].not_these == ("Ann",)
    assert learned(world)[-1] == "line who Bob" and (learned(world)[0] == "line who Ann") is not waits


def test_a_correction_that_is_taken_back_takes_its_lesson_with_it(world: TaughtWorld) -> None:
    rate(world, "Ann")
    world.teach()
    rate(world, "", ("line who Ann",))
    world.teach()
    assert world.states() == {"L1": "given up"} and world.says("who") == ""


def test_the_same_answer_again_is_learned_once_and_its_lesson_is_asked_again(world: TaughtWorld) -> None:
    world.want("who", "Ann")
    world.teach()
    submit(world, line("who?", "Ann"))
    world.teach()
    assert world.states() == {"L1": "known", "L2": "given up"} and learned(world) == ["line who? Ann"]
    assert "lesson L1 teaches the same" in world.of(ev.ExampleLooked)[0].reason
    assert world.of(ev.LessonRequested)[0].lesson == "L1"


# --- time, crashes, archives ------------------------------------------------------------------------------------------


def test_what_came_from_files_waits_for_the_night_though_a_line_waits_for_its_look() -> None:
    settings = msgspec.structs.replace(teaching(), schedule=ScheduleSettings(nightly="02:00-05:00"))
    world = TaughtWorld(settings).up()
    submit(world, "plain bulk", tier="bulk")
    submit(world, "who")
    until(world, Stage.TOLD)
    assert not world.of(ev.StepStarted)
    world.call()
    world.settle()
    assert world.of(ev.StepStarted)[0].example == "line who yes"


def test_a_rollback_leaves_a_line_that_waits_where_it_is(world: TaughtWorld) -> None:
    submit(world, "plain")
    world.settle()
    submit(world, "who")
    until(world, Stage.BASELINE)
    world.give(inp.RollbackWanted(0, "ann"))
    world.teach()
    assert learned(world) == ["line plain yes", "line who yes"] and world.states() == {"L1": "known"}


def test_evidence_against_a_line_ends_its_lesson(world: TaughtWorld) -> None:
    said = Evidence("complaint", "bad", 1.0, "k")
    response = inp.Response("k")
    submit(world, line("who", responses=(response,)))
    until(world, Stage.BASELINE)
    batch = Batch("log", "/log", 10, 1, (Line(1, evidence=(said,)),), learn="unrejected")
    world.give(inp.LinesRead(batch, frozenset(), responses={"k": "line who yes"}))
    world.teach()
    assert world.states() == {"L1": "given up"} and not learned(world)
