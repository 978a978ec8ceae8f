"""Where no replay can be run after an alarm: the suspects are ranked, the first are held, the others learned again."""

from contextlib import suppress
from typing import Any

import pytest
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.world import Died, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.rules.quality.incidents import ATTEMPTS_MAX, SHARE, first

NO_ROOM = "a replay takes 9.9 GB of GPU memory beside what is served, and 0.1 GB are free"
LINES = ("a", "b", "bad", "c", "d")


class Cramped(GuardedWorld):
    """There is no memory for a second copy of the weights."""

    def replay(self) -> list[ev.Event]:
        asked = self.replayed.pop(0)
        return self.give(inp.WindowReplayFailed(asked.incident, asked.number, NO_ROOM, for_good=True))


def cramped(*lines: str, poison: dict[str, int], **settings: Any) -> Cramped:
    w = Cramped(guarded(**{"every_steps": len(lines)} | settings)).up()
    assert isinstance(w, Cramped)
    w.poison = poison
    w.lines(*lines)
    return w


def asked_for(w: GuardedWorld) -> None:
    """Up to the moment at which the trainer is asked for a ranking."""
    w.answers = False
    while not w.ranking:
        w.settle()
        if w.replayed:
            w.replay()
        while w.probed:
            w.look()
    w.answers = True


def whys_after(w: GuardedWorld, settled: ev.QualitySettled) -> list[str]:
    at = next(r.seq for r in w.journal if r.event is settled)
    return [r.event.why for r in w.journal if r.seq > at and isinstance(r.event, ev.QualityMeasured)]


def test_the_first_by_rank_are_held_as_not_proven_and_all_others_learned_again_and_measured() -> None:
    w = cramped(*LINES, poison={"bad": ITEMS})
    w.settle()
    (begun,), (ranked,), (named,) = w.of(ev.QualityRankBegun), w.of(ev.QualityRanked), w.of(ev.QualityNamed)
    assert (begun.incident, begun.number, begun.suspects) == (1, 1, LINES)
    assert ranked.scores == {one: float(one == "bad") for one in LINES} and ranked.seconds == 2.0
    assert (named.verdict, named.culprits, named.suspects, named.reason) == ("ranked", (), ("bad",), NO_ROOM)
    (held,) = w.of(ev.ExampleHeld)
    assert held.example == "bad" and "ranked" not in held.reason and "which is no proof" in held.reason
    (settled,) = w.of(ev.QualitySettled)
    assert w.learned() == ["a", "b", "c", "d"] and whys_after(w, settled)[0] == "asked"
    assert len(w.of(ev.QualityAlarmed)) == 1 and w.state.quality.incident is None


def test_each_example_counts_by_its_share_of_the_rate_and_each_metric_by_its_margin() -> None:
    w = Cramped(changed(guarded(every_steps=2), accumulate=2)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "bad", "b")
    asked_for(w)
    (asked,) = w.ranking
    (margin,) = w.state.quality.incident.margins.values()  # type: ignore[union-attr]
    (items,) = asked.items.values()
    steps = w.of(ev.StepStarted)
    rates = {one: e.lr / len(ev.all_examples(e)) for e in steps for one in ev.all_examples(e)}
    assert {one.example: one.lr for one in asked.suspects} == rates and len(set(rates.values())) > 1
    assert asked.weights == {"facts.passed": 1.0 / margin} and len(items) == ITEMS and asked.references == "r"
    assert all(one.objective == "sft" and one.digest for one in asked.suspects)


def test_where_the_ranking_was_wrong_the_next_alarm_holds_the_next_ones() -> None:
    w = cramped(*LINES, poison={"bad": ITEMS})
    w.misleading = {"a": 1.0, "bad": SHARE / 2}
    w.settle()
    assert [e.suspects for e in w.of(ev.QualityNamed)] == [("a",), ("bad",)]
    assert [e.suspects for e in w.of(ev.QualityRankBegun)] == [LINES, ("b", "bad", "c", "d")]
    assert w.learned() == ["b", "c", "d"] and set(w.state.review.held) == {"a", "bad"}
    assert len(w.of(ev.QualityAlarmed)) == len(w.of(ev.QualitySettled)) == 2


def test_what_replays_had_shown_to_be_innocent_is_not_ranked() -> None:
    w = GuardedWorld(guarded(every_steps=5)).up()
    w.poison = {"bad": ITEMS}
    w.lines(*LINES)
    w.answers = False
    while len(w.of(ev.QualityReplayed)) < 4:
        w.settle()
        if w.replayed:
            w.replay()
        while w.probed:
            w.look()
    asked = w.replayed.pop()
    w.give(inp.WindowReplayFailed(asked.incident, asked.number, "no room", for_good=True))
    w.answers = True
    w.settle()
    (begun,), (named,) = w.of(ev.QualityRankBegun), w.of(ev.QualityNamed)
    assert "bad" in begun.suspects and len(begun.suspects) < len(LINES)
    assert (named.verdict, named.suspects, named.replays) == ("ranked", ("bad",), 4)


@pytest.mark.parametrize("why", ["no_ranking", "nobody harms"])
def test_without_a_ranking_all_that_may_have_done_it_are_held(why: str) -> None:
    w = cramped(*LINES, poison={"bad": ITEMS})
    if why == "no_ranking":
        w.no_ranking = "CUDA\nout of memory"
    else:
        w.misleading = {"bad": -1.0}
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert (named.verdict, named.suspects) == ("unfinished", LINES) and not w.learned()
    told = f"{NO_ROOM}; nor can the examples be ranked: CUDA out of memory"
    assert named.reason == (told if why == "no_ranking" else NO_ROOM)


def test_an_example_without_a_score_is_held_too() -> None:
    w = cramped(*LINES, poison={"bad": ITEMS})
    asked_for(w)
    asked = w.ranking.pop()
    scores = {one.example: w.poison.get(one.example, 0) / ITEMS for one in asked.suspects if one.example != "c"}
    w.give(inp.ExamplesRanked(asked.incident, asked.number, scores, {"c": "its tokens are others now"}))
    w.settle()
    assert w.of(ev.QualityNamed)[0].suspects == ("bad", "c") and w.learned() == ["a", "b", "d"]


def test_a_trainer_that_ends_meanwhile_is_asked_again_and_given_up_the_third_time() -> None:
    w = cramped(*LINES, poison={"bad": ITEMS})
    for number in range(1, ATTEMPTS_MAX + 1):
        asked_for(w)
        assert (w.ranking[0].number, w.state.quality.incident.ranking.open) == (number, True)  # type: ignore[union-attr]
        assert "the examples are ranked" in blocked(Activity.STEP, w.state)
        stale = w.ranking[0]
        w.exit("trainer")
        w.give(inp.ExamplesRanked(stale.incident, stale.number, {"a": 1.0}))
        assert not w.of(ev.QualityRanked), "whoever is gone says nothing"
        if number < ATTEMPTS_MAX:
            w.pass_time(600)
    w.settle()
    w.pass_time(600)
    w.settle()
    assert [e.reason for e in w.of(ev.QualityRankFailed)] == ["the trainer ended 3 times while it ranked them"]
    assert w.of(ev.QualityNamed)[0].verdict == "unfinished" and set(w.state.review.held) == set(LINES)


def test_a_person_who_resumes_meanwhile_ends_it_and_a_late_answer_says_nothing() -> None:
    w = cramped(*LINES, poison={"bad": ITEMS})
    asked_for(w)
    asked = w.ranking[0]
    w.give(inp.TrainingResumed("p"))
    assert w.state.quality.incident is None and len(w.of(ev.QualitySettled)) == 1
    w.give(inp.ExamplesRanked(asked.incident, asked.number, {"bad": 1.0}))
    assert not w.of(ev.QualityRanked)


@pytest.mark.parametrize("instant", range(1, 70, 3))
def test_a_crash_at_any_moment_ends_in_the_same(instant: int) -> None:
    def life(dies_at: int) -> tuple[list[str], int, int]:
        """`dies_at`: instants after the lines, after which the daemon dies once; 0: it does not."""
        w: GuardedWorld = Cramped().up()
        w.poison = {"bad": ITEMS}
        w.lines("a", "b", "bad", "d", "e")
        w.dies_at = w.instants + dies_at if dies_at else 0
        with suppress(Died):
            w.settle()
        if dies_at:
            w = w.successor().up()
        w.settle()
        assert w.of(ev.QualityNamed)[0].verdict == "ranked" and w.state.review.held.keys() == {"bad"}
        return w.learned(), len(w.of(ev.QualityAlarmed)), len(w.of(ev.QualitySettled))

    assert life(instant) == life(0) == (["a", "b", "d", "e"], 1, 1)


def test_few_stand_first() -> None:
    scores = {"a": 4.0, "b": 4.0 * SHARE, "c": 3.9 * SHARE, "d": -9.0, "e": 3.0}
    assert first(scores, 8) == ["a", "e", "b"] and first(scores, 2) == ["a", "e"]
    assert first({"a": 0.0, "b": -1.0}, 8) == first({}, 8) == []
