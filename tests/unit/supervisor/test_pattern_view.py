"""What people are told of a pattern is what decides."""

import msgspec
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns

from apollod.cli.control.dreams.pattern_page import page
from apollod.core.dreams.contrast_cases import ContrastCase
from apollod.core.quality.baseline import Baseline
from apollod.supervisor.dreaming.pattern_view import patterns_view


def test_of_tests_in_contrast_the_text_is_shown_that_decides() -> None:
    """With one text everything passes and with the other one nothing does; the newest tests are of the first."""
    pattern = msgspec.structs.replace(PATTERN, contrast=("Act.", "Wait."), settle=(2, 3))
    world = DreamingWorld(with_patterns(pattern)).up()
    course = world.state.dreams.courses["ask"]
    course.contrast = [("Wait.", True), ("Wait.", False), ("Wait.", False), *[("Act.", True)] * 3]
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert shown["window"]["leaks"] == ["Wait."] and shown["window"]["contrast"] == {"passed": 1, "of": 3}
    course.contrast = []
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert shown["window"]["contrast"] == {"passed": 0, "of": 0}


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
    world.state.dreams.courses[PATTERN.name].phase = "retired"
    assert guard() == (2, [])
