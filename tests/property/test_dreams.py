"""Dreams under random orders of answers, failures, users, people and deaths: at most one at a time, nothing trained
that was not called good, or twice, or that tests are made with; also where the journal goes on from an archive."""

from collections import Counter

import msgspec
from hypothesis import assume, example, given
from hypothesis import strategies as st
from property.test_continuation import archived
from property.test_core_properties import folded
from support.dreaming_world import PATTERN, DreamingWorld, text, with_patterns
from support.effort import draws
from support.lives import goes_on, goes_well, stopped

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import carried_state, obstacle
from apollod.core.facts.dreams.course import next_move, rests
from apollod.core.facts.dreams.events import LEARNED_FROM
from apollod.core.fold import fold
from apollod.core.rules.dreams.policy import advance
from apollod.core.state import State
from apollod.wire.state_snapshot import dump_state, load_state

replace = msgspec.structs.replace
ASK = replace(PATTERN, held_out=2, settle=(1, 2))
CAPS = replace(ASK, name="caps", instruction="Answer in capitals.", contrast=("In small letters.", "As you like."))
OTHERWISE = replace(ASK, instruction="Ask twice before you act.")

ANSWERED = [
    "calls",
    "calls",
    "calls",
    "call",
    "settled call",
    "bad",
    "unsure",
    "better bad",
    "again",
    "late",
    "old text",
]
FAILED = ["endpoint", "nonsense", "refused", "untestable"]
LIFE = ["settle", "answer", "lines", "kill", "stop", "trainer dies", "engine dies", "checkpoint", "back", "relearn",
        "users", "no users", "nobody knows", "time", "days", "clock back", "clock forward", "year ahead", "year back",
        "pause", "resume", "retire", "add", "add otherwise", "no dreams", "dreams", "dreams of one"]  # fmt: skip
ACTION = st.tuples(st.sampled_from([*ANSWERED, *FAILED, *LIFE]), st.integers(0, 5))
ACTIONS = st.one_of(st.lists(ACTION, max_size=15), st.lists(ACTION, min_size=15, max_size=80))
MODE = st.sampled_from(["always", "idle", "off"])


def play(mode: str, calls: int, actions: list[tuple[str, int]]) -> DreamingWorld:
    """So many calls are answered before anything else happens."""
    world = DreamingWorld(with_patterns(ASK, CAPS, dream={"mode": mode})).up()
    if mode != "always":
        world.give(inp.DreamingStarted("p", count=9))
    world.lines("a", "b", source="first")
    world.dream(calls)
    for action, number in actions:
        world = act(world, action, number)
    return world


def scenarios(world: DreamingWorld) -> list[str]:
    return [e.scenario[-1].content for e in world.of(ev.DreamImagined)]


def act(world: DreamingWorld, action: str, number: int) -> DreamingWorld:
    match action:
        case "calls":
            for _ in range(number * 3):
                world.settle()
                world.call()
        case "call":
            world.call()
        case "settled call":
            world.settle()
            world.call()
        case "bad" | "unsure" | "better bad" if world.calls:
            world.verdict = lambda asked: (
                "good" if action == "bad" and asked.stage == "judging better" else action.split()[-1]
            )
            for _ in range(4):
                world.call()
            world.verdict = lambda asked: "good"
        case "again" if world.calls:
            said = world.reply(world.calls.pop(0))
            world.give(said)
            world.give(said)
        case "busy":  # the trainer, with what is no dream's
            named = len(world.journal)
            world.lines(f"x{named}", f"y{named}", source=f"b{named}")
            for _ in range(number):
                world.answer()
            for _ in range(3):
                world.call()
        case "late" if world.answered:
            world.give(world.reply(world.answered[-1 - number % len(world.answered)]))
        case "old text" if scenarios(world):
            old = scenarios(world)
            world.imagines = lambda asked: old[number % len(old)]
            for _ in range(2):
                world.settle()
                world.call()
            world.imagines = lambda asked: text(world.scenarios)
        case "endpoint" | "nonsense" | "refused" if world.calls:
            fail(world, action)
        case "untestable":
            for _ in range(4):
                if world.calls and isinstance(world.calls[0], fx.TestScenario):
                    fail(world, "check")
                    world.pass_time(400)
        case "users" | "no users" | "nobody knows":
            world.give(inp.EngineUse(action != "no users", "it does not say" if action == "nobody knows" else ""))
        case "retire":
            world.give(inp.PatternUnwanted(("ask", "caps")[number % 2], "p"))
        case "add":
            world.give(inp.PatternWanted((ASK, CAPS)[number % 2], "p"))
        case "add otherwise":
            world.give(inp.PatternWanted(OTHERWISE, "p"))
        case "no dreams":
            world.give(inp.DreamingStopped("p", "stopped by p"))
        case "dreams":
            world.give(inp.DreamingStarted("p", count=number))
        case "dreams of one":
            world.give(inp.DreamingStarted("p", ("ask", "caps")[number % 2], number))
        case _:
            world = goes_on(world, action, number)
            assert isinstance(world, DreamingWorld)
    if world.state.children.engine.phase == "spawned":
        world.engine_up()
    return world


def fail(world: DreamingWorld, cause: str) -> None:
    asked = world.calls.pop(0)
    stage = f"round {asked.round}" if isinstance(asked, fx.TestScenario) and asked.round else "testing"
    stage = {fx.ImagineScenario: "imagining", fx.AnswerScenario: "answering"}.get(type(asked), stage)
    stage = asked.stage if isinstance(asked, fx.JudgeDream) else stage
    case = (asked.mode, asked.sample) if isinstance(asked, fx.TestScenario) else ("bare", 0)
    world.give(inp.DreamCallFailed(asked.dream, stage, asked.attempt, cause, "it is so", case=case))  # type: ignore[arg-type,attr-defined]


def rest(world: DreamingWorld) -> DreamingWorld:
    """Nobody is in the way any more."""
    world.give(inp.TrainingResumed("t"))
    world.give(inp.DreamingStarted("t"))
    for _ in range(3):
        goes_well(world)
        world.dream(300)
    return world


class Audit:
    """Reads a journal from its first event to its last, knowing nothing of the code that wrote it."""

    def __init__(self) -> None:
        self.open: ev.DreamRequested | None = None
        self.ended = Counter[str]()
        self.purposes: dict[str, ev.DreamRequested] = {}
        self.practised: dict[str, set[str]] = {}
        self.tested: dict[str, set[str]] = {}
        self.good: str = ""
        self.examples: dict[str, str] = {}
        self.trained = Counter[str]()
        self.said_trained = Counter[str]()
        self.step: tuple[str, ...] = ()

    def see(self, e: ev.Event) -> None:
        match e:
            case ev.DreamRequested():
                assert self.open is None, "two dreams at once"
                assert all(int(e.dream[1:]) > int(one[1:]) for one in self.purposes), "an id was used twice"
                self.open = self.purposes[e.dream] = e
            case ev.PatternRetired():
                assert self.open is None or self.open.pattern != e.pattern, "a dream of a pattern that is retired"
            case ev.PatternAdded():
                assert self.open is None or self.open.pattern != e.pattern.name, (
                    "a dream of a pattern that is not there"
                )
                self.tested[e.pattern.name] = set()  # its tests are begun anew; what was practised stays practised
            case ev.DreamImagined():
                said, pattern = e.scenario[-1].content, self.now(e.dream).pattern
                practised, tested = self.practised.setdefault(pattern, set()), self.tested.setdefault(pattern, set())
                assert said not in practised | tested, "a scenario was dreamt twice"
                (practised if self.now(e.dream).purpose == "practice" else tested).add(said)
            case ev.DreamAnswered():
                assert self.now(e.dream).purpose in LEARNED_FROM
            case ev.DreamJudged():
                assert self.now(e.dream).purpose in LEARNED_FROM
                assert not e.example or (e.verdict == "good" and self.now(e.dream).purpose == "practice")
                self.good = e.example
            case ev.ExampleAccepted() if e.source.startswith("dream:"):
                dream = e.source.removeprefix("dream:")
                assert self.now(dream).purpose == "practice" and e.example == self.good, "not called good"
                assert dream not in self.examples, "two examples of one dream"
                self.examples[dream] = e.example
            case ev.DreamTested(round=""):
                assert self.now(e.dream).purpose == "variation"
            case ev.DreamTested():
                assert self.purposes[e.dream].purpose == "held-out" and self.ended[e.dream] == 1
            case ev.DreamTrained():
                assert self.now(e.dream) and self.examples[e.dream] == e.example and e.example in self.step
                self.said_trained[e.dream] += 1
                assert self.said_trained[e.dream] == 1
            case ev.DreamSettled() | ev.DreamAbandoned():
                assert self.now(e.dream)
                self.ended[e.dream] += 1
                self.open = None
            case ev.StepCompleted() if e.applied:
                self.step = ev.all_examples(e)
                self.trained.update(self.step)
                assert not [one for one in self.step if self.trained[one] > 1], "trained twice"
            case ev.RollbackStarted():
                self.trained.subtract(e.examples)

    def now(self, dream: str) -> ev.DreamRequested:
        assert self.open is not None and self.open.dream == dream, "of a dream that is not open"
        return self.open

    def check(self, world: DreamingWorld) -> None:
        own = world.state.dreams
        assert (own.open.id if own.open else None) == (self.open.dream if self.open else None)
        open_ = {self.open.dream} if self.open else set()
        assert set(self.ended) == set(self.purposes) - open_ and set(self.ended.values()) <= {1}
        assert folded(world) == world.state
        again = load_state(dump_state(world.state))
        assert own.at_rest == all(rests(one, own.settlings) for one in own.courses.values())
        resting = [one for one in own.courses.values() if rests(one, own.settlings)]
        assert not [one for one in resting if one.taken_back or next_move(one, own)]
        assert again == world.state and list(again.dreams.courses) == list(own.courses)


CALLS = st.integers(0, 70)


@draws(24, 3000)
@example(45, [("kill", 0), ("calls", 5), ("back", 2), ("calls", 5), ("retire", 0)], "always")
@example(8, [("again", 0), ("settle", 0)] * 15, "always")
@example(8, [("busy", 1), ("settle", 0)] * 12, "always")
@example(45, [("add otherwise", 0), ("dreams of one", 0), ("old text", 2), ("calls", 5)], "always")
@given(CALLS, ACTIONS, MODE)
def test_one_dream_at_a_time_and_nothing_is_trained_that_should_not_be(calls, actions, mode):
    audit, world = Audit(), play(mode, calls, actions)
    for recorded in world.journal:
        audit.see(recorded.event)
    audit.check(world)
    seen = len(world.journal)
    rest(world)
    for recorded in world.journal[seen:]:
        audit.see(recorded.event)
    audit.check(world)
    requests_as_asked(world)
    assert world.state.dreams.open is None, "a dream that never ends"
    assert {one.phase for one in world.state.dreams.courses.values()} <= {"settled", "retired"}


def requests_as_asked(world: DreamingWorld) -> None:
    """Every request is the one that would have been made had nobody asked before its predecessor was recorded."""
    state = State()
    for recorded in world.journal:
        if isinstance(recorded.event, ev.DreamRequested):
            assert advance(state, recorded.at_ns).events == [recorded.event]
        fold(state, recorded)


@draws(20, 2000)
@example(45, [("old text", 1)], [("old text", 2), ("calls", 5)], "always")
@given(CALLS, st.lists(ACTION, max_size=20), st.lists(ACTION, max_size=20), MODE)
def test_a_journal_that_goes_on_from_an_archive_dreams_on(calls, before, after, mode):
    audit, world = Audit(), play(mode, calls, before)
    assume(stopped(world) and not obstacle(world.state))
    for recorded in world.journal:
        audit.see(recorded.event)
    later = archived(world)
    assert isinstance(later, DreamingWorld)
    assert carried_state(folded(later)) == carried_state(later.state) == carried_state(world.state)
    assert list(later.state.dreams.courses) == list(world.state.dreams.courses)
    again = archived(later)
    assert carried_state(again.state) == carried_state(later.state)
    seen = len(again.journal)
    again.up()
    for action, number in after:
        again = act(again, action, number)
    for recorded in rest(again).journal[seen:]:
        audit.see(recorded.event)
    audit.check(again)
    assert again.state.dreams.open is None


def test_the_lives_above_get_as_far_as_everything_that_is_looked_at():
    """Settled, unsettled by a rollback, abandoned, and trained."""
    world = play("always", 60, [("bad", 0), ("unsure", 0), *[("calls", 5)] * 20, *[("back", 5), ("settle", 0)] * 3])
    seen = {*world.kinds(), *play("always", 42, [("unsure", 0), ("calls", 1)] * 5).kinds()}
    assert {"pattern.settled", "pattern.unsettled", "dream.abandoned", "dream.trained"} <= seen
