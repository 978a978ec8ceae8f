"""What is told of dreams while they are dreamt."""

from typing import Any

from apollod.demo.dream_report import Story


def heard(*events: tuple[str, dict[str, Any]]) -> tuple[Story, list[str]]:
    story = Story()
    return story, [line for kind, body in events if (line := story.hear(kind, body))]


ADDED = [("pattern.added", {"pattern": {"name": name}}) for name in ("ask", "caps")]
PRACTICE = [
    ("dream.requested", {"dream": "d1", "pattern": "ask", "purpose": "practice"}),
    ("dream.imagined", {"dream": "d1", "scenario": [{"role": "user", "content": "Lift the red box."}]}),
]


def one_test(passed: bool, mode: str = "bare", round_: str = "") -> tuple[str, dict[str, Any]]:
    return "dream.tested", {"dream": "d1", "pattern": "ask", "mode": mode, "passed": passed, "round": round_}


def test_it_is_over_when_nothing_is_left_to_be_dreamt_of() -> None:
    settled = {"practices": 3, "tests": {"bare": [9, 10], "contrast": [10, 10]}}
    story, lines = heard(
        *ADDED, ("pattern.settled", {"pattern": "ask", **settled}), ("pattern.settled", {"pattern": "caps", **settled})
    )
    assert story.over and lines[0] == "ask is settled after 3 practices: 9 of 10 bare, 10 of 10 contrast"
    story.hear("pattern.unsettled", {"pattern": "ask", "reason": "it is lost"})
    assert not story.over
    story.hear("pattern.retired", {"pattern": "ask", "reason": "its budget is spent"})
    assert story.over and story.phases == {"ask": "retired", "caps": "settled"}
    assert not Story().over, "nobody said yet what is to be learned"


def test_the_line_shows_what_is_dreamt_and_the_window_of_tests() -> None:
    story, lines = heard(*ADDED, *PRACTICE)
    assert story.line == 'ask: 0 practices "Lift the red box."' and not lines
    for event in [
        ("dream.trained", {"dream": "d1"}), *(one_test(passed) for passed in (True, False, *[True] * 7, False, False)),
        one_test(True, "contrast"),
    ]:  # fmt: skip
        story.hear(*event)
    assert story.line == "ask: 1 practices, bare -+++++++--, contrast +" and story.practices == {"ask": 1, "caps": 0}


def test_a_round_is_counted_by_mode() -> None:
    story, _ = heard(*ADDED, *PRACTICE, one_test(False, "bare", "baseline"), one_test(True, "bare", "final 9"))
    for event in (one_test(False, "contrast", "final 9"), one_test(True, "bare", "final 9")):
        story.hear(*event)
    assert story.line == "ask: final 9, on what was held out: 2 of 2 bare, 0 of 1 contrast"


def test_what_fails_is_said_and_what_is_imagined_to_be_held_out_is_not() -> None:
    story, lines = heard(
        *ADDED, ("dream.requested", {"dream": "d1", "pattern": "ask", "purpose": "held-out"}), PRACTICE[1],
        ("dream.failed", {"dream": "d1", "reason": "the imagination repeats itself"}),
        ("dreaming.stopped", {"reason": "dreams of ask collapsed"}),
    )  # fmt: skip
    assert lines == ["d1: the imagination repeats itself", "no more dreams: dreams of ask collapsed"]
    assert "red box" not in story.line and story.dreams == 1 and story.over
