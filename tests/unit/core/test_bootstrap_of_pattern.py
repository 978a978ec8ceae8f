"""What logs taught of a pattern is tested at the end as what practices taught: on held-out scenarios in their
surroundings, bare and in contrast, by its own check and with the error bound."""

import msgspec
import pytest
from support.dreaming_world import FIRM, LEAKS, PATTERN, DreamingWorld, with_patterns

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.state import Course
from apollod.core.rules.dreams.continuing import carried_dreams
from apollod.core.surroundings import SURROUNDING_KINDS

WIDE = msgspec.structs.replace(PATTERN, held_out=8, surroundings=SURROUNDING_KINDS)
REQUEST = ev.BootstrapRequested(
    path="/logs", by="p", models=("*",), pattern="ask", instruction=PATTERN.instruction, check=PATTERN.check
)


@pytest.fixture
def world() -> DreamingWorld:
    """With its baseline, before any practice."""
    w = DreamingWorld(with_patterns(WIDE, dream={"mode": "off"})).up()
    w.give(inp.DreamingStarted("p", count=1))
    while len(course(w).tried) < 3 * WIDE.held_out - 1:
        w.call()
    (last,) = w.calls
    w.give(inp.DreamingStopped("p", "stopped by p"))
    w.give(w.reply(last))
    assert course(w).baseline and w.state.dreams.open is None
    return w


def course(w: DreamingWorld) -> Course:
    return w.state.dreams.courses["ask"]


def bootstrap(w: DreamingWorld, *examples: str, firm: int = FIRM, leaks: int = 0) -> None:
    """Learn these from logs, which make the behaviour so firm."""
    w.give(REQUEST)
    w.lines(*examples, source=f"f00{REQUEST.mark}")
    w.firm["ask"], w.leak["ask"] = firm, leaks
    w.give(inp.BootstrapRan(REQUEST, files=1, bytes=1))
    w.settle()
    assert w.of(ev.BootstrapCompleted)


def dream(w: DreamingWorld) -> None:
    w.give(inp.DreamingStarted("p"))
    w.dream()


def made(w: DreamingWorld, round_: str) -> list[ev.DreamTested]:
    return [e for e in w.of(ev.DreamTested) if e.round == round_]


def test_what_logs_taught_settles_by_the_tests_of_a_practice_and_without_one(world: DreamingWorld) -> None:
    bootstrap(world, "a", "b")
    dream(world)
    tests = [e for e in made(world, "bootstrap 1") if not e.sample]
    assert {(e.mode, e.surrounding) for e in tests} == {(m, k) for m in ("bare", "contrast") for k in SURROUNDING_KINDS}
    (settled,) = world.of(ev.PatternSettled)
    assert settled.tests == {"bare": (8, 8), "contrast": (8, 8)} and settled.practices == 0 == len(
        world.of(ev.DreamTrained)
    )
    assert min(of for _, of in settled.sampled.values()) >= 13 and set(settled.around) == set(SURROUNDING_KINDS)
    assert settled.baseline["bare"] == (0, 8), "of before"
    assert not course(world).due and course(world).bootstraps == 1


@pytest.mark.parametrize(("firm", "leaks"), [(0, 0), (FIRM, LEAKS)])
def test_what_logs_did_not_teach_or_taught_where_it_is_wrong_is_practised(
    world: DreamingWorld, firm: int, leaks: int
) -> None:
    bootstrap(world, "a", "b", firm=firm, leaks=leaks)
    dream(world)
    (settled,) = world.of(ev.PatternSettled)
    assert settled.practices and made(world, "bootstrap 1") and made(world, f"final {settled.practices}")


def test_shown_in_one_surrounding_only_it_is_not_settled_by_logs(world: DreamingWorld) -> None:
    world.only_elsewhere = {"agent"}
    bootstrap(world, "a")
    world.give(inp.DreamingStarted("p", count=1))
    for _ in range(16):
        world.call()
    assert (
        not world.of(ev.PatternSettled)
        and course(world).failed
        and course(world).final_around["agent"]["bare"] == (0, 2)
    )


def test_logs_that_taught_nothing_new_ask_for_no_test(world: DreamingWorld) -> None:
    bootstrap(world)
    assert not course(world).due and not course(world).bootstraps
    bootstrap(world, "a")
    assert course(world).due == "bootstrap 1"
    dream(world)
    bootstrap(world)
    assert not course(world).due and course(world).bootstraps == 1


def test_a_bootstrap_of_another_instruction_is_none_of_the_pattern(world: DreamingWorld) -> None:
    world.give(inp.PatternWanted(msgspec.structs.replace(WIDE, instruction="Ask nicely."), "p"))
    bootstrap(world, "a")
    assert not course(world).due and not course(world).bootstraps


def test_a_settled_pattern_that_logs_harmed_is_practised_again_and_no_other_pattern_is_blamed(
    world: DreamingWorld,
) -> None:
    other = msgspec.structs.replace(PATTERN, name="caps", instruction="Answer in capitals.")
    bootstrap(world, "a")
    dream(world)
    world.give(inp.PatternWanted(other, "p"))
    dream(world)
    assert [e.pattern for e in world.of(ev.PatternSettled)] == ["ask", "caps"]
    bootstrap(world, "b", firm=0)
    assert not world.state.dreams.at_rest
    dream(world)
    (unsettled,) = world.of(ev.PatternUnsettled)
    assert unsettled.pattern == "ask" and unsettled.harmed_by == ""
    assert [e.pattern for e in world.of(ev.PatternSettled)][2] == "ask" and course(world).practices >= FIRM


def test_a_crash_before_and_amid_the_tests_changes_nothing(world: DreamingWorld) -> None:
    bootstrap(world, "a")
    again = world.successor().up()
    again.give(inp.DreamingStarted("p", count=1))
    for _ in range(5):
        again.call()
    assert course(again).due and len(course(again).tried) == 5
    third = again.successor().up()
    third.dream()
    assert len([e for e in made(third, "bootstrap 1") if not e.sample]) == 16 and third.of(ev.PatternSettled)


def test_it_is_the_test_that_comes_next(world: DreamingWorld) -> None:
    bootstrap(world, "a")
    world.give(inp.DreamingStarted("p", count=1))
    (call,) = world.calls
    assert isinstance(call, fx.TestScenario) and call.round == "bootstrap 1" and call.told == ""
    assert carried_dreams(world.state.dreams).courses["ask"].due == "bootstrap 1"
