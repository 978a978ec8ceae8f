"""No means no: what evidence about an answer does to its example, whenever it comes."""

import msgspec
import pytest
from support.judged_world import JUDGED, JudgedWorld
from support.said_world import SaidWorld, interrupted, passed, undo
from support.world import SETTINGS, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Evidence, rejections


def paused(**settings: object) -> SaidWorld:
    w = SaidWorld(changed(SETTINGS, **settings)).up()
    w.give(inp.TrainingPaused("t"))
    return w


def test_an_answer_that_was_rejected_in_the_same_lines_is_held_and_its_retry_is_learned() -> None:
    w = SaidWorld().up()
    w.says("first", "retry", shown=(undo("first"),))
    w.settle()
    assert w.state.training.version == 1 and w.of(ev.StepStarted)[0].example == "retry"
    (held,) = w.of(ev.ExampleHeld)
    assert (held.example, held.by, held.waits_for, held.reason) == (
        "first", "evidence", "person", 'rejected (undo): "undo that"'
    )  # fmt: skip


def test_all_learns_it_as_before_and_weak_evidence_decides_nothing() -> None:
    w = SaidWorld()
    w.learn = "all"
    w.up().says("first", shown=(undo("first"),))
    w.settle()
    assert w.state.training.counts.trained == 1 and not w.of(ev.ExampleHeld)
    w = SaidWorld().up()
    w.says("first", shown=(interrupted("first"),))
    w.settle()
    assert w.state.training.counts.trained == 1 and len(w.of(ev.SignalFlagged)) == 1


def test_evidence_that_comes_while_an_answer_waits_holds_it() -> None:
    w = paused()
    w.says("first", "second")
    w.says(shown=(undo("first"),))
    assert w.states() == {"first": "held", "second": "pending"}
    w.give(inp.TrainingResumed("t"))
    w.settle()
    assert [e.example for e in w.of(ev.StepStarted)] == ["second"]


def test_what_a_person_approved_stays_approved() -> None:
    w = paused()
    w.says("first", shown=(undo("first"),))
    w.give(inp.DecisionsGiven((inp.Decision("first", "approve"),), "anna"))
    w.says(shown=(Evidence("correction", "correction", 0.8, "k first", "s", ("r",), "no"),))
    assert w.states() == {"first": "pending"} and len(w.of(ev.SignalFlagged)) == 2
    w.give(inp.DecisionsGiven((inp.Decision("first", "hold"),), "anna"))
    assert not w.state.review.approved


def test_a_rejection_that_an_earlier_log_showed_holds_the_answer_when_it_comes() -> None:
    """A rewound turn is no example; the same answer in another log is one."""
    w = SaidWorld().up()
    w.says(shown=(Evidence("rewound", "bad", 0.7, "k gone", "s", ("r",), "why"),))
    assert w.of(ev.SignalFlagged)[0].example == ""
    w.says("gone")
    assert w.states() == {"gone": "held"}
    assert set(rejections("k gone")) & {e.signal for e in w.of(ev.SignalFlagged)}


def test_positive_learns_only_what_something_speaks_for() -> None:
    w = SaidWorld()
    w.learn = "positive"
    w.up().says("good", "unknown", "both", shown=(passed("good"), passed("both"), undo("both")))
    w.settle()
    assert [e.example for e in w.of(ev.StepStarted)] == ["good"]
    held = {e.example: (e.waits_for, e.reason) for e in w.of(ev.ExampleHeld)}
    assert held["unknown"] == ("evidence", "nothing shows yet that it was right") and held["both"][0] == "person"
    w.says(shown=(passed("unknown"),))
    w.settle()
    assert [e.example for e in w.of(ev.StepStarted)] == ["good", "unknown"]
    (approved,) = w.of(ev.ExampleApproved)
    assert (approved.by, approved.reason) == ("evidence", 'check: "pytest: 3 passed"')
    assert "unknown" not in w.state.review.approved, "only a person's approval outlasts evidence"


def test_what_waits_for_a_sign_and_is_rejected_waits_for_a_person() -> None:
    w = SaidWorld()
    w.learn = "positive"
    w.up().says("unknown")
    w.says(shown=(undo("unknown"),))
    assert w.state.review.held["unknown"].waits_for == "person"
    w.says(shown=(passed("unknown"),))
    assert w.states() == {"unknown": "held"}, "a sign does not outweigh the person"


def test_rows_of_data_sets_are_learned_as_they_are() -> None:
    w = SaidWorld().up()
    line = inp.Line(number=1, example="row", record=b"{}")
    batch = inp.Batch("rows", "/rows", 10, 1, (line,), learn="positive")
    w.give(inp.LinesRead(batch, frozenset()))
    w.settle()
    assert w.state.training.counts.trained == 1


@pytest.mark.parametrize(("tier", "waits_for"), [("bulk", "judge"), ("direct", "person")])
def test_a_judge_is_asked_about_rejected_answers_of_logs(tier: ev.Tier, waits_for: str) -> None:
    class Both(SaidWorld, JudgedWorld):
        pass

    w = Both(changed(SETTINGS, mode="flagged"))
    w.start()
    w.says("first", "second", shown=(undo("first"),), tier=tier)
    (held,) = w.of(ev.ExampleHeld)
    assert (held.example, held.waits_for) == ("first", waits_for)


def test_a_source_that_is_reviewed_waits_for_its_person() -> None:
    w = SaidWorld().up()
    w.says("first", shown=(undo("first"),), hold=1.0)
    (held,) = w.of(ev.ExampleHeld)
    assert held.reason == "its source is reviewed" and msgspec.structs.asdict(held)["by"] == ""


def judged(mode: str = "all") -> JudgedWorld:
    """A trusted judge has declined `a` and written `better a`, about which it is asked next."""
    w = JudgedWorld(changed(JUDGED, mode=mode)).up()
    w.calibrate()
    w.lines("a")
    w.says("bad", "bad", "bad", about="a", better="better a")
    return w


def test_a_person_who_approves_what_the_judge_declined_drops_its_better_answer() -> None:
    w = judged()
    assert "better a" in w.state.review.held
    w.give(inp.DecisionsGiven((inp.Decision("a", "approve"),), "anna"))
    (gone,) = [e for e in w.of(ev.ExampleDeclined) if e.example == "better a"]
    assert gone.by == "anna" and "anna approved a" in gone.reason
    w.settle()
    assert w.of(ev.StepStarted)[-1].example == "a"


def test_a_better_answer_that_was_learned_is_forgotten() -> None:
    w = judged()
    w.says("good", "good", "good", about="better a")
    w.settle()
    assert w.of(ev.StepStarted)[-1].example == "better a"
    w.give(inp.DecisionsGiven((inp.Decision("a", "approve"),), "anna"))
    w.settle()
    assert set(w.state.intake.withdrawn) == {"better a"}
    assert w.of(ev.StepCompleted)[-1].example == "a" and w.of(ev.ForgetCompleted)[-1].examples == ("better a",)
