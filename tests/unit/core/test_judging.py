"""The judge: whom it is asked about, what a verdict does, and when it is trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.test_continuation import archived
from support.judged_world import CASES, JUDGED, JudgedWorld, configured
from support.lives import stopped
from support.world import changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import carried_state
from apollod.core.facts.intake.events import Evidence
from apollod.core.facts.judging.events import Vote, agreed, spokesman
from apollod.core.facts.judging.state import (
    LEAST,
    SURE,
    WINDOW,
    Agreement,
    Suspicion,
    agreement,
    alarming,
    distrust,
    seen,
)
from apollod.core.rates import wilson
from apollod.core.rules.intake.by_evidence import wants_judge

MIN = JUDGED.judge.trust_min


@pytest.fixture
def world() -> JudgedWorld:
    w = JudgedWorld().up()
    return w.calibrate()


def kinds(events: list[ev.Event]) -> list[str]:
    """Without the next question, which is asked at once."""
    return [event.kind for event in events if not isinstance(event, ev.VerdictRequested)]


# --- whom ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "tier", "flagged", "wanted"),
    [
        ("off", "bulk", True, False), ("all", "bulk", False, True), ("flagged", "bulk", False, False),
        ("flagged", "bulk", True, True), ("all", "direct", True, False), ("all", "dream", True, False),
    ],
)  # fmt: skip
def test_who_is_judged(mode, tier, flagged, wanted) -> None:
    assert wants_judge(mode, tier, flagged) is wanted


def test_flagged_asks_about_what_has_a_signal_wherever_in_the_batch_that_comes() -> None:
    w = JudgedWorld(changed(JUDGED, mode="flagged")).up().calibrate()
    shows = Evidence("correction", "bad", 0.8, answer="b1", quote="no, I meant")
    lines = (
        inp.Line(number=1, example="a", record=b"{}", responses=(inp.Response("a1"),)),
        inp.Line(number=2, example="b", record=b"{}", responses=(inp.Response("b1"),)),
        inp.Line(number=3, evidence=(shows,)),
    )
    events = w.give(inp.LinesRead(inp.Batch("f", "/f", 10, 3, lines), frozenset()))
    assert kinds(events) == [
        "example.accepted",
        "example.accepted",
        "example.held",
        "signal.flagged",
        "source.consumed",
    ]
    assert [asked.subject for asked in w.questions] == ["b"] and w.learned() == ["a"]
    w.says("good")
    assert w.learned() == ["a", "b"]


# --- what a verdict does ---------------------------------------------------------------------------------------------


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_what_waits_for_the_judge_waits_for_it_in_the_journal_that_goes_on(world: JudgedWorld) -> None:
    world.lines("learned", tier="direct", source="ctl")
    world.settle()
    world.lines("a", "b")
    world.says("bad", better="a2")
    assert stopped(world)
    later = archived(world)
    assert carried_state(later.state) == carried_state(world.state)
    later.up()
    later.calibrate()
    assert kinds(later.says("bad", about="a2", better="a3")) == ["verdict.given", "example.held"]
    later.says("good", about="b")
    assert later.learned() == ["b"]


# --- trust -----------------------------------------------------------------------------------------------------------


def test_all_planted_cases_come_before_the_first_example() -> None:
    w = JudgedWorld().up()
    w.lines("a")
    seen = []
    while w.questions:
        seen.append(w.questions[0].subject)
        assert distrust(w.state.judging, MIN) or not w.questions[0].planted
        w.case() if w.questions[0].planted else w.says("good")
    assert seen == [*(case.id for case in CASES), "a"] and w.learned() == ["a"]


def test_agreement_with_people_counts_and_can_win_trust() -> None:
    w = JudgedWorld().up()
    w.calibrate(liar=True)
    number = 0
    while distrust(w.state.judging, MIN):
        number += 1
        assert number < 300
        w.lines(f"x{number}", source=f"f{number}")
        w.says("bad")
        w.decides("decline", f"x{number}")
    w.lines("last", source="last")
    w.says("good")
    assert "last" in w.learned()


def test_one_that_was_trusted_loses_it_where_people_decide_otherwise(world: JudgedWorld) -> None:
    assert distrust(world.state.judging, MIN) == ""
    world.give(inp.TrainingPaused("t"))
    number = 0
    while not distrust(world.state.judging, MIN):
        number += 1
        assert number < 40
        world.lines(f"x{number}", source=f"f{number}")
        world.says("good")  # approved, at first: it waits to be learned, and a person sees it in time
        world.decides("decline", f"x{number}")
    assert "below trust_min" in distrust(world.state.judging, MIN)
    world.lines("y", source="y")
    world.calibrate(liar=True)
    world.says("good")
    assert world.state.review.held["y"].waits_for == "person"


def test_a_decision_about_what_was_not_judged_or_a_second_one_counts_nothing(world: JudgedWorld) -> None:
    before = agreement(world.state.judging)
    world.lines("a", "b", hold=1.0)
    world.decides("approve", "a")
    world.decides("decline", "b")
    assert agreement(world.state.judging) == before
    world.give(inp.TrainingPaused("t"))
    world.lines("c", source="c")
    world.says("good")
    world.decides("decline", "c")
    world.decides("approve", "c")
    now = agreement(world.state.judging)
    assert (now.of_good, now.of_bad) == (before.of_good, before.of_bad + 1)


def test_a_planted_case_comes_again_among_the_verdicts_each_in_its_turn(world: JudgedWorld) -> None:
    world.lines(*(f"x{n}" for n in range(30)))
    order = []
    while world.questions:
        order.append(world.questions[0].planted)
        world.case() if order[-1] else world.says("good")
    assert 6 <= sum(order) <= 10, "after every third verdict, since 30 of 100 bad cases are known; more rarely then"
    again = [e.case for e in world.of(ev.VerdictRequested) if e.case][len(CASES) :]
    assert again == [case.id for case in CASES if case.expected == "bad"][: len(again)], "what is bad: it says good"


def test_nonsense_about_a_case_counts_as_wrong_and_an_endpoint_that_is_down_does_not() -> None:
    w = JudgedWorld().up()
    for _ in range(8):
        w.fails()
        w.pass_time(400)
    assert agreement(w.state.judging) == Agreement(0, 0, 0, 0) and len(w.state.judging.due) == len(CASES)
    first = w.questions[0].subject
    while any(asked.subject == first for asked in w.questions) or not w.of(ev.VerdictFailed)[-1].gives_up:
        w.fails("nonsense", "prose")
    found = agreement(w.state.judging)
    assert (found.good + found.bad, found.of_good + found.of_bad) == (0, 1)


def test_too_few_cases_are_not_enough() -> None:
    w = JudgedWorld()
    w.judge = configured(cases=CASES[: 2 * (LEAST - 1)])
    w.up()
    w.calibrate()
    assert "10 known cases of each sort are needed" in distrust(w.state.judging, MIN)
    w.lines("a")
    w.says("good")
    assert w.learned() == []


def test_the_figure_is_of_the_last_ones_and_balanced() -> None:
    assert Agreement(90, 90, 0, 10).figure == 0.5 and Agreement(1, 1, 0, 0).figure is None
    assert Agreement(8, 10, 10, 10).figure == pytest.approx(0.9)
    low, high = wilson(8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)  # R: prop.test(8, 10, correct = FALSE)
    assert wilson(0, 0) == (0.0, 1.0) and wilson(10, 10)[1] == pytest.approx(1.0)
    w = JudgedWorld().up()
    w.calibrate()
    w.lines(*(f"x{n}" for n in range(1620)))
    while w.questions:
        w.case() if w.questions[0].planted else w.says("bad" if int(w.questions[0].subject[1:]) % 2 else "good")
    assert len(w.state.judging.good) == len(w.state.judging.bad) == WINDOW


# --- one that becomes worse ------------------------------------------------------------------------------------------


def lie(w: JudgedWorld, learning: bool = False) -> None:
    """It says good to everything, until it is trusted no longer. `learning`: what it approves is learned at once."""
    while not w.of(ev.JudgeDistrusted):
        if w.questions[0].planted:
            w.case(liar=True)
        else:
            w.says("good", about=w.questions[0].subject)
        if learning:
            w.settle()


def test_one_that_begins_to_say_yes_is_stopped_and_what_waits_still_is_recalled(world: JudgedWorld) -> None:
    world.give(inp.TrainingPaused("t"))
    world.lines(*(f"honest{n}" for n in range(30)), source="h")
    while world.questions:
        world.case() if world.questions[0].planted else world.says("good")
    world.lines(*(f"x{n}" for n in range(200)), source="x")
    lie(world)
    (ended,) = world.of(ev.JudgeDistrusted)
    approved = [e.example for e in world.of(ev.ExampleApproved) if e.example.startswith("x")]
    assert 0 < len(approved) <= 12 and "what is bad wrong" in ended.reason
    assert set(approved) <= set(ended.recalled) and not ended.learned
    held = world.state.review.held
    assert all(held[one].waits_for == "person" and "no longer sure" in held[one].reason for one in ended.recalled)
    assert not any(one in ended.recalled for one in ("honest0", "honest1")), "believed: a case was passed since"
    assert distrust(world.state.judging, MIN) == "0 of 60 planted cases were asked"


def test_what_it_approved_before_it_was_stopped_and_was_learned_is_named(world: JudgedWorld) -> None:
    world.lines(*(f"x{n}" for n in range(100)), source="x")
    lie(world, learning=True)
    (ended,) = world.of(ev.JudgeDistrusted)
    learned = set(world.learned())
    assert ended.learned and set(ended.learned) <= learned and not set(ended.recalled) & learned


def test_one_that_lies_for_good_is_examined_once_and_then_asked_no_more_cases_than_before(world: JudgedWorld) -> None:
    world.lines(*(f"x{n}" for n in range(50)), source="x")
    lie(world)
    world.calibrate(liar=True)
    before = len([e for e in world.of(ev.VerdictRequested) if e.case])
    assert "below trust_min" in distrust(world.state.judging, MIN)
    while world.questions:
        world.case(liar=True) if world.questions[0].planted else world.says("good")
    cases = [e for e in world.of(ev.VerdictRequested) if e.case][before:]
    assert len(world.of(ev.JudgeDistrusted)) == 1 and len(cases) <= 50 / 2


def test_what_people_approve_becomes_a_case_as_it_is_and_with_a_change(world: JudgedWorld) -> None:
    world.lines("a", "b", hold=1.0)
    world.decides("approve", "a", "b")
    world.decides("decline", "b")
    own = world.state.judging
    assert own.next_case("good") == "same:a" and own.next_case("bad") == "changed:a"
    world.lines(*(f"x{n}" for n in range(9)), source="x")
    while not (world.questions and world.questions[0].planted):
        world.says("good")
    assert world.questions[0].subject == "changed:a"
    world.fails("refused", "no change would make it bad")
    assert "a" not in world.state.judging.reviewed and len(world.state.judging.bad) == 30


@pytest.mark.parametrize(("trust_min", "cases"), [(0.6, 8), (0.8, 4), (0.9, 3), (1.0, 2)])
def test_the_higher_the_trust_the_fewer_wrong_answers_end_it(trust_min: float, cases: int) -> None:
    found = {"bad": Suspicion()}
    for _ in range(200):
        found["bad"] = seen(found["bad"], True, trust_min)
    assert found["bad"].e_value <= SURE
    count = 0
    while not alarming(found):
        found["bad"], count = seen(found["bad"], False, trust_min), count + 1
    assert count <= cases


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.sampled_from([0.6, 0.8, 0.95]))
def test_the_evidence_of_one_answer_is_fair(rights: list[bool], trust_min: float) -> None:
    """At the tolerated share the mean of the next e-value is at most the present one and 1 (which is what bounds false
    alarms), whatever came before."""
    now = Suspicion()
    for right in rights:
        now = seen(now, right, trust_min)
    after = trust_min * seen(now, True, trust_min).e_value + (1 - trust_min) * seen(now, False, trust_min).e_value
    assert after <= (now.e_value + 1) * (1 + 1e-9)


def test_what_votes_amount_to() -> None:
    bad, better = Vote("bad", "q1"), Vote("bad", "q2", better="b")
    assert agreed([bad, better]) == "bad" and spokesman([bad, better]) is better
    assert agreed([bad, Vote("good")]) == "unsure" and spokesman([bad, Vote("good")]) is bad
