"""What people are told of a pattern is what decides."""

import msgspec
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns

from apollod.cli.control.pattern import page
from apollod.core.facts.dreams.held_out_rounds import ContrastCase
from apollod.core.facts.quality.sequential import Baseline
from apollod.core.surroundings import SURROUNDING_KINDS as KINDS
from apollod.supervisor.lesson_view import patterns_view


def test_of_tests_in_contrast_the_text_is_shown_that_decides() -> None:
    """Of two practised texts one passes always and the other one hardly; the newest tests are of the first."""
    pattern = msgspec.structs.replace(PATTERN, contrast=("Act.", "Wait.", "Be still."), settle=(2, 3))
    world = DreamingWorld(with_patterns(pattern)).up()
    course = world.state.dreams.courses["ask"]
    course.contrast = [("Wait.", True), ("Wait.", False), ("Wait.", False), *[("Act.", True)] * 3]
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert shown["window"]["leaks"] == ["Wait."] and shown["window"]["contrast"] == {"passed": 1, "of": 3}
    course.contrast = []
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert shown["window"]["contrast"] == {"passed": 0, "of": 0}


def test_figures_are_shown_by_surrounding_and_what_cannot_be_had_is_named() -> None:
    world = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, held_out=8))).up()
    world.dream()
    course = world.state.dreams.courses["ask"]
    course.left_out["own"] = "own: there is none yet"
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert shown["surroundings"] == ["none", "neutral", "agent", "own"]
    assert shown["baseline_around"]["agent"]["bare"]["passed"] == 0
    assert {kind: rates["bare"]["passed"] for kind, rates in shown["final_around"].items()} == dict.fromkeys(KINDS, 2)
    told = page(shown)
    at = told.index("around      what stands before a request, in turn: none, neutral, agent, own")
    assert told[at + 1 : at + 5] == [
        "    none    bare 0/2 -> 2/2, contrast 2/2 -> 2/2",
        "    neutral bare 0/2 -> 2/2, contrast 2/2 -> 2/2",
        "    agent   bare 0/2 -> 2/2, contrast 2/2 -> 2/2",
        "    own     bare 0/2 -> 2/2, contrast 2/2 -> 2/2; not to be had, own: there is none yet",
    ]
    course.left_out.clear()
    course.baseline_around["agent"] |= {"told": (0, 2)}
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert "; the model does not do it there even when it is told: 0 of 2" in page(shown)[at + 3]
    fresh = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, surroundings=("agent",)))).up()
    (shown,) = patterns_view(fresh.state, 0)["patterns"]
    assert "    agent   not tested yet" in page(shown) and shown["surroundings"] == ["agent"]


def test_figures_are_shown_of_situations_and_of_wordings_that_no_practice_has() -> None:
    world = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, situations=3))).up()
    world.dream()
    world.state.dreams.courses["ask"].no_situations = "it repeats itself"
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert (shown["final"]["situation"]["passed"], shown["final_held_out"]["contrast"]["of"]) == (3, 2)
    told = "\n".join(page(shown))
    assert (
        "situations  3 of 3 in which it would be wrong, only tested; no more could be imagined: it repeats itself"
        in told
    )
    last = next(line for line in page(shown) if line.startswith("last round"))
    assert "contrast 4 of 4" in last and "situation 3 of 3" in last and "only tested contrast 2 of 2" in told
    (shown,) = patterns_view(DreamingWorld(with_patterns(PATTERN)).up().state, 0)["patterns"]
    assert any(line.startswith("situations  none (situations = 0)") for line in page(shown))


def test_whether_its_contrast_cases_are_probes_is_told_where_there_is_a_baseline() -> None:
    world = DreamingWorld(with_patterns(PATTERN)).up()

    def guard() -> tuple[int | None, list[str]]:
        (shown,) = patterns_view(world.state, 0)["patterns"]
        return shown["guarded"], [line for line in page(shown) if line.startswith("guard ")]

    assert guard() == (None, [])
    world.state.quality.baseline = {"facts.passed": Baseline({"a": 1.0}, 0.0)}
    cases, (line,) = guard()
    assert cases == 0 and "`apollod ctl quality baseline` takes in" in line
    cases_of = [ContrastCase(name, "d1", "Act.", (), PATTERN.check) for name in (PATTERN.name, "other", PATTERN.name)]
    world.state.quality.contrasts = tuple(cases_of)
    assert guard() == (2, ["guard       2 of its contrast cases are probes"])
    world.state.dreams.courses[PATTERN.name].state = "given up"
    assert guard() == (2, [])
