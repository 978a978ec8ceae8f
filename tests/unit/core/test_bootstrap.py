"""A bootstrap from the request until none of its examples waits, whatever becomes of each of them."""

import msgspec
import pytest
from support.judged_world import JUDGED, JudgedWorld
from support.world import World, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.bootstrap import EARLIER_MAX, Bootstrapping, bootstraps_taken_over
from apollod.core.facts.intake.state import Waiting
from apollod.core.facts.training import Pace
from apollod.core.fold import fold
from apollod.core.rules.bootstrap import left_s, to_come, typical_tokens
from apollod.core.settings import Check, PatternSettings
from apollod.core.state import State

REQUEST = ev.BootstrapRequested(path="/logs", by="p", models=("*",))
SOURCE = f"f00{REQUEST.mark}"


@pytest.fixture
def world() -> World:
    w = World().up()
    w.give(REQUEST)
    return w


def now(w: World) -> Bootstrapping:
    assert w.state.bootstrap.current is not None
    return w.state.bootstrap.current


def test_it_is_over_when_all_is_read_and_nothing_of_it_waits(world: World) -> None:
    world.lines("a", "b", "a", source=SOURCE)
    world.lines("other", source="f00")
    world.settle()
    assert now(world).phase == "reading" and now(world).counts == ev.BootstrapCounts(2, 1, learned=2)
    world.lines("c", source=f"{SOURCE}~2")
    world.give(inp.BootstrapRan(REQUEST, files=3, bytes=70))
    assert now(world).phase == "learning" and list(now(world).waiting) == ["c"]
    world.settle()
    (read,), (completed,) = world.of(ev.BootstrapRead), world.of(ev.BootstrapCompleted)
    assert (read.files, read.bytes, read.counts.accepted) == (3, 70, 3)
    assert completed.counts == ev.BootstrapCounts(3, 1, learned=3) == now(world).counts
    assert now(world).phase == "completed"


def test_what_is_not_learned_is_not_waited_for(world: World) -> None:
    """Too long, too large for the memory, withdrawn, decided against, held by the rule of the source."""
    world.give(inp.TrainingPaused("t"))
    world.lines("a", "long1", "huge1", "w", "d", source=SOURCE)
    world.lines("h", source=SOURCE, hold=1.0)
    world.give(inp.ExampleWithdrawn(("w",), "p"))
    world.give(inp.DecisionsGiven((inp.Decision("d", "decline"),), "p"))
    world.give(inp.BootstrapRan(REQUEST))
    world.give(inp.TrainingResumed("t"))
    world.settle()
    (completed,) = world.of(ev.BootstrapCompleted)
    assert completed.counts == ev.BootstrapCounts(6, learned=1, held=2) and now(world).waiting == {}


def test_one_at_a_time(world: World) -> None:
    assert world.give(REQUEST) == []
    other = ev.BootstrapRequested(path="/others", by="p", models=("*",))
    assert world.give(other) == [] and now(world).request == REQUEST
    world.give(inp.BootstrapRan(REQUEST))
    assert [event.kind for event in world.give(other)] == ["bootstrap.requested"]
    assert world.give(inp.BootstrapRan(REQUEST)) == [], "the reader of another one"


def test_stopped_it_reads_no_more_and_asked_again_it_goes_on_with_its_counts(world: World) -> None:
    world.give(inp.TrainingPaused("t"))
    world.lines("a", source=SOURCE)
    assert [event.kind for event in world.give(inp.BootstrapStopWanted("p"))] == ["bootstrap.stopped"]
    assert world.give(inp.BootstrapStopWanted("p")) == [] == world.give(inp.BootstrapRan(REQUEST))
    assert now(world).phase == "stopped" and world.state.intake.pending == 1
    world.give(REQUEST)
    world.lines("b", source=SOURCE)
    assert now(world).counts == ev.BootstrapCounts(2) and list(now(world).waiting) == ["a", "b"]
    world.give(inp.TrainingResumed("t"))
    world.settle()
    assert now(world).counts == ev.BootstrapCounts(2, learned=2) and len(world.of(ev.StepCompleted)) == 2


def test_what_a_stopped_one_has_in_the_queue_is_counted_though_another_one_came_between(world: World) -> None:
    world.give(inp.TrainingPaused("t"))
    world.lines("a", "b", "h", source=SOURCE)
    world.give(inp.BootstrapStopWanted("p"))
    world.give(inp.DecisionsGiven((inp.Decision("h", "hold"),), "p"))
    other = msgspec.structs.replace(REQUEST, path="/others")
    world.give(other)
    world.lines("o", source=f"f01{other.mark}")
    world.give(inp.TrainingResumed("t"))
    world.settle()
    assert now(world).counts == ev.BootstrapCounts(1, learned=1)
    world.give(inp.BootstrapRan(other))
    world.give(msgspec.structs.replace(REQUEST, by="q", tier="direct"))
    assert now(world).counts == ev.BootstrapCounts(3, learned=2, held=1) and now(world).waiting == {}


def test_asked_again_after_its_end_it_counts_what_came_since_to_what_was_there(world: World) -> None:
    world.lines("a", source=SOURCE)
    world.give(inp.BootstrapRan(REQUEST))
    world.settle()
    world.give(REQUEST)
    assert (now(world).phase, now(world).completed) == ("reading", 1)
    world.lines("b", source=SOURCE)
    world.give(inp.BootstrapRan(REQUEST))
    world.settle()
    assert [e.counts.learned for e in world.of(ev.BootstrapCompleted)] == [1, 2]


def test_few_of_those_that_were_asked_for_are_remembered(world: World) -> None:
    for n in range(EARLIER_MAX + 9):
        world.give(inp.BootstrapStopWanted("p"))
        world.give(msgspec.structs.replace(REQUEST, path=f"/{n}"))
    own = world.state.bootstrap
    assert len(own.earlier) == EARLIER_MAX and own.before(REQUEST) is None
    assert own.before(msgspec.structs.replace(REQUEST, path=f"/{EARLIER_MAX}")) is not None


def test_answers_that_give_no_example_are_counted_and_lines_that_are_no_answers_are_not(world: World) -> None:
    batch = inp.Batch(SOURCE, "/x", 10, 1, (), counts={"dropped: a prompt without text": 7}, unlearned=2)
    world.give(inp.LinesRead(batch, frozenset()))
    assert now(world).counts == ev.BootstrapCounts(dropped=2)


def test_the_next_journal_goes_on_with_what_was_stopped(world: World) -> None:
    world.give(inp.TrainingPaused("t"))
    world.lines("a", "b", source=SOURCE)
    world.give(inp.BootstrapRan(REQUEST, files=3, bytes=70))
    world.give(inp.BootstrapStopWanted("p"))
    world.give(msgspec.structs.replace(REQUEST, path="/others"))
    world.give(inp.BootstrapStopWanted("p"))
    later = State()
    for seq, (at_ns, event) in enumerate(bootstraps_taken_over(world.state.bootstrap, world.now), 1):
        fold(later, ev.Recorded(seq, at_ns, event))
    assert later.bootstrap == world.state.bootstrap and list(later.bootstrap.earlier) == [f"/logs{REQUEST.mark}"]


# --- the judge of a pattern decides ----------------------------------------------------------------------------------

JUDGED_PATTERN = PatternSettings("ask", "Ask first.", check=Check(rubric="In one sentence."))
JUDGED_REQUEST = ev.BootstrapRequested(
    path="/logs", by="p", models=("*",), pattern="ask", instruction="Ask first.", check=JUDGED_PATTERN.check
)


@pytest.fixture
def judged() -> JudgedWorld:
    """`[judge] mode` is off: it judges for the pattern alone, and is trusted."""
    settings = changed(JUDGED, mode="off", concurrency=1)
    dream = msgspec.structs.replace(settings.dream, mode="off", pattern=(JUDGED_PATTERN,))
    w = JudgedWorld(msgspec.structs.replace(settings, dream=dream))
    w.up()
    w.calibrate()
    w.give(JUDGED_REQUEST)
    return w


def read(w: JudgedWorld, *examples: str, tier: ev.Tier = "bulk") -> None:
    lines = tuple(inp.Line(number=n, example=one, record=b"{}") for n, one in enumerate(examples, 1))
    source = f"f00{JUDGED_REQUEST.mark}"
    w.give(inp.LinesRead(inp.Batch(source, "/x", 10, 1, lines, judged="the judge says", tier=tier), frozenset()))


def test_the_judge_of_a_pattern_decides_what_is_learned_and_is_waited_for(judged: JudgedWorld) -> None:
    read(judged, "good", "bad", "unsure")
    judged.give(inp.BootstrapRan(JUDGED_REQUEST))
    assert now(judged).phase == "learning" and list(now(judged).waiting) == ["good", "bad", "unsure"]
    assert judged.learned() == []
    assert [one.rubric for one in judged.questions if not one.planted] == ["In one sentence."]
    judged.says("good", "good", "good")
    assert judged.learned() == ["good"]
    judged.says("bad", "bad", "bad")
    assert now(judged).phase == "learning"
    judged.says("good", "bad", "good")
    judged.settle()
    (completed,) = judged.of(ev.BootstrapCompleted)
    assert completed.counts == ev.BootstrapCounts(3, learned=1, held=1)


def test_what_is_given_directly_is_judged_too_where_a_pattern_wants_it(judged: JudgedWorld) -> None:
    read(judged, "a", tier="direct")
    assert judged.learned() == [] and judged.state.review.held["a"].waits_for == "judge"


def test_without_the_pattern_nobody_judges_and_a_person_decides(judged: JudgedWorld) -> None:
    read(judged, "a", "b")
    judged.give(inp.PatternUnwanted("ask", "p"))
    judged.give(inp.Tick())
    assert {one.waits_for for one in judged.state.review.held.values()} == {"person"}
    assert now(judged).counts.held == 2


def test_what_waited_for_a_judge_that_is_off_waits_for_a_person_though_a_bootstrap_wants_one(
    judged: JudgedWorld,
) -> None:
    held = inp.Batch("file", "/x", 10, 1, (inp.Line(number=1, example="old", record=b"{}"),), judged="before")
    judged.give(inp.LinesRead(held, frozenset()))
    read(judged, "a")
    judged.give(inp.Tick())
    assert {one: held.waits_for for one, held in judged.state.review.held.items()} == {"old": "person", "a": "judge"}


def test_a_source_that_cannot_be_read_ends_it_with_the_reason(world: World) -> None:
    world.give(inp.BootstrapRan(REQUEST, refused="it is gone"))
    assert now(world).phase == "stopped" and now(world).reason == "it is gone"


def test_an_event_names_some_of_what_was_not_read_and_counts_all(world: World) -> None:
    world.give(inp.BootstrapRan(REQUEST, unread=tuple(ev.Unread(str(n), "no") for n in range(100))))
    (read,) = world.of(ev.BootstrapRead)
    assert (len(read.unread), read.unread_files) == (64, 100)


def test_a_crash_changes_nothing_of_it(world: World) -> None:
    world.give(inp.TrainingPaused("t"))
    world.lines("a", "b", source=SOURCE)
    again = world.crash_and_return()
    assert now(again) == now(world) and now(again).phase == "reading"


@pytest.mark.parametrize(
    "other",
    [
        {"strip": "all"},
        {"models": ("a",)},
        {"sidechains": True},
        {"format": "pi"},
        {"instruction": "Greet."},
        {"check": Check(regex="x")},
        {"check": Check()},
    ],
)
def test_other_rules_have_positions_of_their_own(other: dict[str, object]) -> None:
    request = ev.BootstrapRequested(**{"path": "/logs", "by": "p", "models": ("*",)} | other)  # type: ignore[arg-type]
    assert request.mark != REQUEST.mark


def test_the_same_rules_have_the_same_positions_whoever_asks_and_with_whatever_rate() -> None:
    again = ev.BootstrapRequested(path="/logs/a", by="q", models=("*",), tier="direct", review="hold")
    assert again.mark == REQUEST.mark


def test_time_left_is_that_of_what_waits_and_of_what_the_rest_will_give() -> None:
    recent = [Pace(100, 2.0), Pace(100, 2.0)]
    assert left_s(recent, 100, waiting=10, accepted=20, share=0.5) == 60.0
    assert left_s(recent, 100, waiting=10, accepted=20, share=1.0) == 20.0
    assert left_s([], 100, 10, 20, 0.5) is None is left_s(recent, 100, 10, 20, None)
    assert left_s(recent, 100, 0, 0, 0.0) is None, "nothing is read yet"


def test_what_the_rest_of_a_source_will_give_is_as_much_as_it_gave_so_far() -> None:
    assert (to_come(20, 0.5), to_come(20, 1.0), to_come(0, 0.5)) == (20, 0, 0)
    assert to_come(20, None) is None is to_come(0, 0.0)


def test_lengths_are_those_of_the_queue_and_else_of_the_last_steps() -> None:
    recent = [Pace(300, 1.0)]
    assert typical_tokens(recent, [Waiting("a", tokens=100), Waiting("b", tokens=200), Waiting("c")]) == 150
    assert typical_tokens(recent, [Waiting("a")]) == 300 and typical_tokens([], []) == 0
