"""Lessons under random orders of answers, failures, people, rollbacks and deaths: one at a time, nothing trained that
is known or that the told model cannot answer, nothing twice, nothing known without its test; also where the journal
goes on from an archive."""

from collections import Counter

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from property.test_continuation import archived
from property.test_core_properties import folded
from support.effort import draws
from support.lives import goes_on, goes_well, stopped
from support.taught_world import FIRM, HELD_OUT, TaughtWorld, teaching
from support.world import Died

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.continuation import carried_state, obstacle
from apollod.core.facts.lessons.stages import Stage
from apollod.core.fold import fold
from apollod.core.proof import decided
from apollod.core.state import State
from apollod.wire.state_snapshot import dump_state, load_state

QUESTIONS = ("who is x", "who is y", "old", "odd", "dull", "flaky", "long")
ANSWERS = ("Ann", "Bob", "known")
DOES = [*["calls"] * 5, "call", "again", "late", "endpoint", "refused"]
LIFE = ["direct", "direct", "leak", "approve", "withdraw", "want", "want", "replace", "request",
        "forget", "forget example", "settle", "answer", "lines", "kill", "stop",
        "trainer dies", "engine dies", "checkpoint", "back", "relearn", "hold", "time", "days", "weeks", "clock back",
        "year ahead", "year back", "pause", "resume"]  # fmt: skip
ACTION = st.tuples(st.sampled_from([*DOES, *LIFE]), st.integers(0, 9))
SETTINGS = st.builds(
    teaching, steps=st.sampled_from([2, 7, 24]), ask_again=st.sampled_from([("1h", "1d"), ("4 steps", "1h"), ()])
)
CALLS = st.integers(0, 40)


def play(calls: int, actions: list[tuple[str, int]], settings: ev.Settings) -> TaughtWorld:
    """So many calls are answered before anything else happens."""
    world = TaughtWorld(settings).up()
    world.harms = {"who is y": "who is x"}
    world.lines("a", "b", source="first")
    for question, answer in (("who is x", "Ann"), ("who is y", "Ann"), ("old", "known"), ("who is x", "Bob")):
        world.want(question, answer)
    world.teach(calls)
    for action, number in actions:
        world = act(world, action, number)
    return world


def act(world: TaughtWorld, action: str, number: int) -> TaughtWorld:
    question, lesson, named = QUESTIONS[number % len(QUESTIONS)], f"L{1 + number}", len(world.journal)
    match action:
        case "calls":
            world.teach(3 * number)
        case "call":
            world.call()
        case "again" if world.calls:
            said = world.reply(world.calls.pop(0))
            world.give(said)
            world.give(said)
        case "late" if world.answered:
            world.give(world.reply(world.answered[-1 - number % len(world.answered)]))
        case "endpoint" | "refused" if world.calls:
            world.fail("endpoint" if action == "endpoint" else "refused", "no")
            world.pass_time(400)
        case "direct" | "leak":
            direct(world, question, ANSWERS[number % 3], f"line {named} {question}", "a probe" * (action == "leak"))
        case "approve" if world.state.review.held:
            one = next(iter(world.state.review.held))
            world.give(inp.DecisionsGiven((inp.Decision(one, "approve"),), "me"))
        case "withdraw":
            world.give(inp.ExampleWithdrawn(tuple(world.state.intake.first_looks)[: number % 2], "me"))
        case "want":
            world.want(question, ANSWERS[number % 3])
        case "replace":
            world.want(question, ANSWERS[number % 2], replaces=lesson)
        case "request":
            world.give(inp.LessonRequested(lesson, "me"))
        case "forget":
            world.give(inp.LessonUnwanted(lesson, "me"))
        case "forget example" if world.known:
            world.give(inp.ForgetRequested((sorted(world.known)[number % len(world.known)],), "me", ""))
        case "hold" if world.known:
            one = sorted(world.known)[number % len(world.known)]
            world.give(inp.DecisionsGiven((inp.Decision(one, "hold"),), "me"))
        case _:
            world = goes_on(world, action, number)
            assert isinstance(world, TaughtWorld)
    if world.state.children.engine.phase == "spawned":
        world.engine_up()
    return world


def direct(world: TaughtWorld, question: str, answer: str, example: str, leak: str = "") -> None:
    """A line of which a lesson can be made."""
    given = inp.Line(1, example, b"{}", lesson=ev.Given(question=question, answer=answer), leak=leak)
    world.give(inp.LinesRead(inp.Batch("ctl", "", 0, 1, (given,), tracked=False, tier="direct"), frozenset()))


def rest(world: TaughtWorld) -> TaughtWorld:
    """Nobody is in the way any more."""
    for _ in range(4):
        goes_well(world)
        world.teach()
    return world


class Audit:
    """Reads a journal from its first event to its last, knowing nothing of the code that wrote it."""

    def __init__(self) -> None:
        self.given: dict[str, ev.Given] = {}
        self.open: ev.LessonBegun | None = None
        self.asked: list[ev.LessonAsked] = []
        """in a row, of one lesson, stage and round"""
        self.failed_bare: set[str] = set()
        self.told: set[str] = set()
        """answered when told, or correct something"""
        self.rounds: dict[str, tuple[int, Stage]] = {}
        self.practised: Counter[str] = Counter()
        self.trained: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.over: set[str] = set()
        self.step: tuple[str, ...] = ()
        self.lines: set[str] = set()
        """of which lessons were made"""
        self.looked: set[str] = set()
        self.settled: set[str] = set()
        self.left: set[str] = set()
        """the queue, if only for a time"""

    def see(self, e: ev.Event) -> None:
        match e:
            case ev.LessonGiven():
                assert e.lesson not in self.given and int(e.lesson[1:]) == len(self.given) + 1
                self.given[e.lesson] = e.given
                self.lines |= {e.example} - {""}
            case ev.LessonBegun():
                assert self.open is None, "two lessons at once"
                self.open, self.asked = e, []
            case ev.LessonAsked():
                self._asked(e)
            case ev.LessonPrepared():
                assert self.open is not None and self.open.lesson == e.lesson
                assert e.lesson in self.failed_bare and e.lesson in self.told, "trained before it was asked"
                assert e.example not in self.examples
                self.examples[e.example] = e.lesson
            case ev.ExampleAccepted() if e.source.startswith("lesson:"):
                assert self.examples[e.example] == e.source.removeprefix("lesson:")
            case ev.LessonPractised():
                assert self.open is not None and self.open.lesson == e.lesson
                assert not e.step or (e.example in self.step and self.trained[e.example] == 1)
                self.practised[e.example] += bool(e.example)
                assert self.practised[e.example] <= 1
            case ev.LessonKnown():
                self._known(e)
                self.open = None
            case ev.LessonKept() | ev.LessonFading() | ev.LessonGivenUp() | ev.LessonReplaced() | ev.LessonRequested():
                if isinstance(e, ev.LessonReplaced):
                    assert e.lesson not in self.over
                    self.over.add(e.lesson)
                    self.told.add(e.by)
                if self.open is not None and self.open.lesson == e.lesson:
                    self.open = None
            case ev.LessonPutOff():
                assert self.open is not None and self.open.lesson == e.lesson and e.lesson in self.told
                self.open = None
            case ev.ExampleLooked():
                assert e.example in self.lines and e.example not in self.looked, "looked at twice"
                self.looked.add(e.example)
                self.settled |= {e.example} if e.known else set()
            case ev.ExampleReplaced():
                self.told.add(e.lesson)
            case ev.ExampleHeld():
                self.left.add(e.example)
            case ev.ExampleWithdrawn():
                self.left.update(e.examples)
            case ev.StepStarted():
                taken = set(ev.all_examples(e)) & self.lines
                assert e.again_of or taken <= self.looked | self.left, "learned before the first look"
                assert not taken & self.settled, "learned, though the model knows it"
            case ev.StepCompleted() if e.applied:
                self.step = ev.all_examples(e)
                self.trained.update(self.step)
                assert not [one for one in self.step if self.trained[one] > 1], "trained twice"
            case ev.RollbackStarted():
                self.trained.subtract(e.examples)
                self.asked = []

    def _asked(self, e: ev.LessonAsked) -> None:
        assert self.open is not None and self.open.lesson == e.lesson and e.lesson not in self.over
        if self.asked and (self.asked[-1].stage, self.asked[-1].round) != (e.stage, e.round):
            self.asked = []
        if not self.asked and e.stage in (Stage.BASELINE, Stage.TESTING):
            number, _ = self.rounds.get(e.lesson, (0, e.stage))
            assert e.round > number, "a test that was begun before, with the same seeds"
            self.rounds[e.lesson] = e.round, e.stage
        self.asked.append(e)
        greedy = [one.passed for asked in self.asked for one in asked.answers if one.seed is None]
        if e.stage is Stage.BASELINE and not all(greedy):
            self.failed_bare.add(e.lesson)
        if e.stage is Stage.TESTING:
            self.failed_bare.add(e.lesson)
        if e.stage is Stage.TOLD and 2 * sum(greedy) >= HELD_OUT:
            self.told.add(e.lesson)
        if e.stage is Stage.BASELINE and any(one.seed is not None for one in e.answers):
            self.failed_bare.add(e.lesson)  # by chance, if it goes on

    def _known(self, e: ev.LessonKnown) -> None:
        assert self.open is not None and self.open.lesson == e.lesson
        said = [one for asked in self.asked for one in asked.answers]
        greedy = [one for one in said if one.seed is None]
        assert sorted(one.wording for one in greedy) == list(range(HELD_OUT)) and all(one.passed for one in greedy)
        sampled = [one.passed for one in said if one.seed is not None]
        assert decided(sampled, self.asked[-1].proof, HELD_OUT) and e.asks == len(said)

    def check(self, world: TaughtWorld) -> None:
        own = world.state.lessons
        assert (own.open.lesson if own.open else None) == (self.open.lesson if self.open else None)
        assert folded(world) == world.state == load_state(dump_state(world.state))
        known = [one for one in own.lessons.values() if one.state == "known"]
        for due, name in ((own.due, "due_ns"), (own.due_steps, "due_step")):
            assert due == sorted(
                (getattr(one, name), int(one.id[1:])) for one in own.lessons.values() if getattr(one, name)
            )
            assert {number for _, number in due} <= {int(one.id[1:]) for one in known}
        waiting = {id_ for id_, one in own.lessons.items() if one.state in ("waiting", "fading")}
        assert set(own.queue) == waiting
        stand = [one for one in own.lessons.values() if one.worded and one.state not in ("replaced", "given up")]
        assert own.by_key == {one.worded.key: one.id for one in stand if one.worded}
        assert not waiting & {lesson for lesson in self.over}
        looks, queued = world.state.intake.first_looks, {one.example for one in world.state.intake.direct.waiting}
        assert looks.keys() <= queued & self.lines and not looks.keys() & self.looked
        assert set(looks.values()) <= waiting | ({own.open.lesson} if own.open else set())
        assert own.offered.keys() <= world.state.review.held.keys()


@draws(30, 3000)
@example(25, [("kill", 0), ("calls", 5), ("back", 2), ("calls", 5), ("forget", 3)], teaching())
@example(25, [("forget example", 0), ("call", 0), ("weeks", 0), ("calls", 9)], teaching())
@example(9, [("again", 0), ("settle", 0)] * 15, teaching())
@example(0, [("direct", 0), ("endpoint", 0), ("replace", 4)], teaching(steps=2))
@given(CALLS, st.lists(ACTION, max_size=50), SETTINGS)
def test_one_lesson_at_a_time_and_nothing_is_trained_that_should_not_be(calls, actions, settings):
    audit, world = Audit(), play(calls, actions, settings)
    for recorded in world.journal:
        audit.see(recorded.event)
    audit.check(world)
    seen = len(world.journal)
    rest(world)
    for recorded in world.journal[seen:]:
        audit.see(recorded.event)
    audit.check(world)
    assert world.state.lessons.open is None and not world.state.lessons.queue, "a lesson that never ends"
    assert not world.state.intake.first_looks, "a line that waits for ever"
    knows_what_it_says(world)
    nothing_begins_out_of_turn(world)


def nothing_begins_out_of_turn(world: TaughtWorld) -> None:
    state = State()
    for recorded in world.journal:
        if isinstance(recorded.event, ev.LessonBegun):
            assert not blocked(Activity.TEACHING, state)
            assert state.children.engine.phase == state.children.trainer.phase == "ready" and not state.daemon.paused
            assert not (state.rollback.wanted or state.rollback.under_way or state.forgetting.under_way)
        fold(state, recorded)


def knows_what_it_says(world: TaughtWorld) -> None:
    """What was not taken back or overwritten since its test is known as it says; what never was is not."""
    for one in world.state.lessons.lessons.values():
        if one.state == "known" and one.worded is not None and one.worded.question not in ("who is x", "flaky"):
            knows = world.knows[world.memory].get(one.worded.question, ("known", FIRM))
            undone = world.state.intake.undone.keys() | world.state.intake.withdrawn.keys()
            assert knows[0] == one.worded.answer or undone & set(one.examples), (one, knows)


@draws(20, 2000)
@given(CALLS, st.lists(ACTION, max_size=15), st.lists(ACTION, max_size=15), SETTINGS)
def test_a_journal_that_goes_on_from_an_archive_teaches_on(calls, before, after, settings):
    audit, world = Audit(), play(calls, before, settings)
    assume(stopped(world) and not obstacle(world.state))
    for recorded in world.journal:
        audit.see(recorded.event)
    later = archived(world)
    assert isinstance(later, TaughtWorld)
    assert carried_state(folded(later)) == carried_state(later.state) == carried_state(world.state)
    assert list(later.state.lessons.lessons) == list(world.state.lessons.lessons)
    assert list(later.state.lessons.queue) == list(world.state.lessons.queue)
    again = archived(later)
    assert carried_state(again.state) == carried_state(later.state)
    seen = len(again.journal)
    again.up()
    for action, number in after:
        again = act(again, action, number)
    for recorded in rest(again).journal[seen:]:
        audit.see(recorded.event)
    audit.check(again)
    assert again.state.lessons.open is None


def life(dies_at: int = 0, deaths: int = 0) -> TaughtWorld:
    """Two lessons and lines of a file, to the end; it may die at an instant, and its children after some calls."""
    world = TaughtWorld(teaching(), dies_at=dies_at)
    try:
        world.up()
        world.lines("a", "b")
        world.want("who is x", "Ann")
        world.want("old", "known")
        for number in range(deaths):
            world.teach(5)
            world = act(world, ("trainer dies", "engine dies")[number % 2], 0)
        world.teach()
        return rest(world)
    except Died:
        world = world.successor().up()
        for given in (("who is x", "Ann"), ("old", "known"))[len(world.state.lessons.lessons) :]:
            world.want(*given)
        if "a" not in world.known:
            world.lines("a", "b")
    return rest(world)


CALM = life()


@draws(40, 600)
@given(st.integers(1, CALM.instants))
def test_a_life_that_ends_at_any_instant_comes_to_the_same_weights(instant):
    """The call is asked again, and no practice is trained twice."""
    world = life(dies_at=instant)
    assert world.states() == CALM.states() == {"L1": "known", "L2": "known"}
    steps = [[e.example for e in one.of(ev.StepCompleted)] for one in (world, CALM)]
    assert steps[0] == steps[1] and world.memory == CALM.memory
    asked = [[(e.lesson, e.stage, e.round) for e in one.of(ev.LessonAsked)] for one in (world, CALM)]
    assert asked[0] == asked[1], "and nothing is asked otherwise"


@pytest.mark.parametrize("deaths", [1, 2, 5])
def test_children_that_die_change_nothing(deaths):
    assert life(deaths=deaths).memory == CALM.memory


def test_the_lives_above_get_as_far_as_everything_that_is_looked_at():
    again, taught = [("weeks", 0), ("calls", 9)], [("calls", 9), ("calls", 9)]
    actions = [("want", 3), ("request", 2), *taught, ("want", 1), *taught, *again, *again, ("want", 5), ("refused", 0)]
    looks = [
        ("want", 1),
        *(("direct", n) for n in range(25)),
    ]  # more than may wait, and all before the lesson's practice
    world = play(60, [*actions, ("back", 9), *looks], teaching())
    kinds = set(rest(world).kinds())
    missing = {one for one in ev.KINDS if one.startswith("lesson")} - kinds
    assert missing == {"lesson.carried", "lessons.carried"}
