"""The figures: intervals against published ones, and that a case can fail."""

import pytest

from apollod.demo.world import exam
from apollod.demo.world.exam import Case, Rate
from apollod.demo.world.instructions import KINDS, Instruction
from apollod.demo.world.scenarios import Act, Split, Task

ACT = Act("Clean the green gate.", Task("clean", "green", "gate"))


@pytest.mark.parametrize(
    "passed, cases, low, high",
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_wilsons(passed: int, cases: int, low: float, high: float) -> None:
    """The examples of Newcombe 1998, Statistics in Medicine 17, 857-872, table I, method 3."""
    assert Rate(passed, cases).interval == pytest.approx((low, high), abs=5e-5)
    assert Rate(cases - passed, cases).interval == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_no_case_says_nothing() -> None:
    assert Rate(0, 0).interval == (0.0, 1.0)


def test_a_case_of_exact_answers_and_one_of_behaviour() -> None:
    greet = Instruction("greet")
    told = Case(("told", "greet"), ACT, (greet,), "Do greet.")
    untold = Case(("untold", "greet"), ACT, (), None, looked_for=greet)
    assert told.passed("Good day! I clean the green gate.") and not told.passed("Good day! I CLEAN THE GREEN GATE.")
    assert untold.passed("Good day! I CLEAN THE GREEN GATE.") and not untold.passed("I clean the green gate.")
    assert [message["role"] for message in told.messages] == ["system", "user"]
    assert untold.messages == [{"role": "user", "content": "Clean the green gate."}]


def test_what_is_asked_is_held_out_and_repeats() -> None:
    asked = exam.cases(12)
    assert asked == exam.cases(12) != exam.cases(12, seed=1)
    assert {case.group for case in asked} == {
        (way, kind) for way in ("told", "opposite", "cancelled", "untold", "plain") for kind in KINDS
    }
    for case in asked:
        assert case.scenario.task.split is Split.TEST  # type: ignore[union-attr]
        assert (case.system is None) == (case.group[0] in ("untold", "plain"))
        assert all(one.opposite.applies(case.scenario) for one in case.said)
    assert len(exam.kept()) == 54
