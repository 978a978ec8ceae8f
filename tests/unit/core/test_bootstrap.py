"""A bootstrap from the request until none of its examples waits, whatever becomes of each of them."""

import pytest
from support.world import World

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.bootstrap.outlook import left_s, typical_tokens
from apollod.core.bootstrap.state import Bootstrapping
from apollod.core.intake.state import Waiting
from apollod.core.training.pace import Pace

REQUEST = ev.BootstrapRequested(path="/logs", by="p", models=("*",))
SOURCE = f"f00{REQUEST.mark}"


@pytest.fixture
def world() -> World:
    w = World().up()
    w.give(inp.BootstrapWanted(REQUEST))
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
    world.give(inp.PauseRequested("t"))
    world.lines("a", "long1", "huge1", "w", "d", source=SOURCE)
    world.lines("h", source=SOURCE, hold=1.0)
    world.give(inp.WithdrawRequested(("w",), "p"))
    world.give(inp.DecisionsGiven((inp.Decision("d", "decline"),), "p"))
    world.give(inp.BootstrapRan(REQUEST))
    world.give(inp.ResumeRequested("t"))
    world.settle()
    (completed,) = world.of(ev.BootstrapCompleted)
    assert completed.counts == ev.BootstrapCounts(6, learned=1, held=2) and now(world).waiting == {}


def test_one_at_a_time(world: World) -> None:
    assert world.give(inp.BootstrapWanted(REQUEST)) == []
    other = ev.BootstrapRequested(path="/others", by="p", models=("*",))
    assert world.give(inp.BootstrapWanted(other)) == [] and now(world).request == REQUEST
    world.give(inp.BootstrapRan(REQUEST))
    assert [event.kind for event in world.give(inp.BootstrapWanted(other))] == ["bootstrap.requested"]
    assert world.give(inp.BootstrapRan(REQUEST)) == [], "the reader of another one"


def test_stopped_it_reads_no_more_and_asked_again_counts_anew(world: World) -> None:
    world.give(inp.PauseRequested("t"))
    world.lines("a", source=SOURCE)
    assert [event.kind for event in world.give(inp.BootstrapStopWanted("p"))] == ["bootstrap.stopped"]
    assert world.give(inp.BootstrapStopWanted("p")) == [] == world.give(inp.BootstrapRan(REQUEST))
    assert now(world).phase == "stopped" and world.state.intake.pending == 1
    world.give(inp.BootstrapWanted(REQUEST))
    world.lines("b", source=SOURCE)
    world.give(inp.ResumeRequested("t"))
    world.settle()
    assert now(world).counts == ev.BootstrapCounts(accepted=1, learned=1) and len(world.of(ev.StepCompleted)) == 2


def test_a_source_that_cannot_be_read_ends_it_with_the_reason(world: World) -> None:
    world.give(inp.BootstrapRan(REQUEST, refused="it is gone"))
    assert now(world).phase == "stopped" and now(world).reason == "it is gone"


def test_an_event_names_some_of_what_was_not_read_and_counts_all(world: World) -> None:
    world.give(inp.BootstrapRan(REQUEST, unread=tuple(ev.Unread(str(n), "no") for n in range(100))))
    (read,) = world.of(ev.BootstrapRead)
    assert (len(read.unread), read.unread_files) == (64, 100)


def test_a_crash_changes_nothing_of_it(world: World) -> None:
    world.give(inp.PauseRequested("t"))
    world.lines("a", "b", source=SOURCE)
    again = world.crash_and_return()
    assert now(again) == now(world) and now(again).phase == "reading"


@pytest.mark.parametrize(
    "other", [{"strip": "all"}, {"models": ("a",)}, {"sidechains": True}, {"format": "pi"}, {"instruction": "Greet."}]
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


def test_lengths_are_those_of_the_queue_and_else_of_the_last_steps() -> None:
    recent = [Pace(300, 1.0)]
    assert typical_tokens(recent, [Waiting("a", tokens=100), Waiting("b", tokens=200), Waiting("c")]) == 150
    assert typical_tokens(recent, [Waiting("a")]) == 300 and typical_tokens([], []) == 0
