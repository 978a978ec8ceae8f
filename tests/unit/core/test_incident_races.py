"""What people do, and what dies, while the quality guard looks or puts right what it found."""

import pytest
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.world import World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked


def looked_at(*lines: str, poison: str = "bad", **settings: object) -> GuardedWorld:
    """A world in which these were learned, up to the look that will raise an alarm."""
    w = GuardedWorld(guarded(**{"every_steps": len(lines)} | settings)).up()
    w.poison = {poison: ITEMS}
    w.lines(*lines)
    while w.state.training.version < len(lines):
        World.settle(w)
        if w.state.training.version < len(lines):
            w.look()
    assert w.probed and not w.of(ev.QualityAlarmed)
    return w


def searching(*lines: str, **settings: object) -> GuardedWorld:
    w = looked_at(*lines, **settings)
    w.look()
    w.restored()
    assert w.replayed
    return w


@pytest.mark.parametrize("to", [1, 3])
def test_a_look_that_is_answered_while_a_person_wants_other_weights_says_nothing(to: int) -> None:
    """Those are not the weights that will be there, nor is the way back of the person the guard's."""
    w = looked_at("a", "bad", "b", "c")
    w.give(inp.RollbackWanted(to, "p"))
    assert w.state.rollback.wanted is not None
    w.look()
    assert not w.of(ev.QualityAlarmed)
    w.settle()
    (back,) = w.of(ev.RollbackStarted)[:1]
    assert back.to == to
    while w.state.quality.incident is not None or w.probed:
        w.settle()
    learned = w.learned()
    assert len(learned) == len(set(learned))


def test_a_rollback_to_nowhere_ends_no_search() -> None:
    w = searching("a", "bad", "b", "c")
    w.give(inp.RollbackWanted(99, "p"))
    w.settle()
    assert w.of(ev.RollbackRefused) and w.of(ev.QualityNamed)[0].culprits == ("bad",)
    assert w.of(ev.QualitySettled)[0].by != "p" and w.learned() == ["a", "b", "c"]


def test_a_person_who_goes_further_back_during_a_search_ends_it() -> None:
    w = GuardedWorld(guarded(every_steps=2)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "b", "c", "bad")
    while not w.of(ev.QualitySearchBegun):
        World.settle(w)
        if not w.of(ev.QualitySearchBegun):
            w.look()
    w.give(inp.RollbackWanted(1, "p"))
    w.settle()
    (settled,) = w.of(ev.QualitySettled)
    assert (settled.by, settled.how) == ("p", "p wants the weights of step 1") and w.ended == 1
    assert w.state.quality.totals.taken_back == 2, "what a person takes back is not the guard's"
    assert w.learned() == ["a"] and not w.of(ev.QualityNamed)


def test_a_search_is_in_nobodys_way() -> None:
    """It takes as long as its replays: meanwhile weights that were taken back do not stay on disk."""
    w = looked_at("a", "bad", "b", "c")
    w.give(inp.CheckpointRequested("p"))
    w.settle_until(fx.WriteCheckpoint)
    w.answer()
    w.look()
    w.restored()
    assert w.replayed and [e.step for e in w.of(ev.CheckpointCommitted)] == [4, 0]


def test_a_refused_rollback_leaves_an_alarm_without_a_way_back_to_a_person() -> None:
    w = looked_at("a", "bad", "b", "c")
    w.look()
    w.give(inp.RollbackPlanned(0, 4, error="no way"))
    assert w.state.quality.incident is not None and w.state.quality.incident.phase == "stuck"
    w.give(inp.RollbackWanted(99, "p"))
    w.settle()
    assert "they cannot be had" in blocked(Activity.STEP, w.state), "the weights are still the bad ones"


@pytest.mark.parametrize("resume", ["auto", "manual"])
def test_a_second_resume_while_the_innocent_are_learned_again_loses_none_of_them(resume: str) -> None:
    w = searching("a", "bad", "b", "c", "d", resume=resume)
    while not w.of(ev.QualityNamed):
        w.replay()
    for _ in range(3):
        w.give(inp.PauseRequested("p"))
        w.give(inp.ResumeRequested("p"))
    w.settle()
    assert w.learned() == ["a", "b", "c", "d"] and len(w.of(ev.QualitySettled)) == 1
    assert [e.by for e in w.of(ev.QualityResumed)] == ["p"]


def test_weights_that_a_trainer_died_over_are_not_measured() -> None:
    """A step that was begun may have written half of them, until another trainer has put that right."""
    w = GuardedWorld(guarded(every_steps=100)).up()
    w.settle()
    w.lines("a", "b")
    while not (w.asked and isinstance(w.asked[0], fx.RunStep)):
        w.answer()
    w.memory = "torn"
    w.exit("trainer")
    w.give(inp.QualityWanted("p"))
    assert w.state.training.running is not None and not w.probed
    assert "the trainer is not running" in blocked(Activity.MEASUREMENT, w.state)
    w.pass_time(70)
    w.settle()
    assert w.of(ev.QualityMeasured)[-1].why == "asked" and w.learned() == ["a", "b"]


def test_weights_of_a_step_that_was_given_up_are_not_measured_before_a_trainer_has_put_them_right() -> None:
    w = GuardedWorld(guarded(every_steps=100)).up()
    w.settle()
    w.lines("huge", "b")
    while not w.of(ev.StepFailed):
        w.answer()
    w.give(inp.QualityWanted("p"))
    assert w.memory == "torn" and w.state.training.running is None and not w.probed
    w.pass_time(70)
    w.settle()
    assert w.of(ev.QualityMeasured)[-1].why == "asked" and w.learned() == ["b"]


def test_nothing_is_measured_while_training_is_halted() -> None:
    """The weights may be others than the journal says; and an alarm's way back would end the halt without a person."""
    w = GuardedWorld(guarded(every_steps=100)).up()
    w.settle()
    w.lines("a")
    w.settle()
    w.give(inp.Refused("step", "no", ""))
    w.give(inp.QualityWanted("p"))
    assert w.state.daemon.halted and not w.probed
    w.give(inp.ResumeRequested("p"))
    w.pass_time(70)
    w.settle()
    assert w.of(ev.QualityMeasured)[-1].why == "asked"


def test_after_an_alarm_without_a_way_back_the_next_one_knows_all_steps_since_the_last_good_look() -> None:
    w = looked_at("a", "bad", "b", "c")
    w.look()
    w.give(inp.RollbackPlanned(0, 4, error="no way"))
    w.give(inp.ResumeRequested("p"))
    w.lines("d", "e", "f", "g", source="more")
    w.settle()
    begun = w.of(ev.QualitySearchBegun)
    assert begun and begun[0].window == ("a", "bad", "b", "c", "d", "e", "f", "g")
    assert w.of(ev.QualityNamed)[-1].culprits == ("bad",) and w.learned() == list("abcdefg")


def test_a_search_takes_no_more_replays_than_were_said_whatever_the_configuration_says_now() -> None:
    lines = [f"x{n}" for n in range(16)]
    w = GuardedWorld(guarded(every_steps=16, culprits_max=1)).up()
    w.poison = dict.fromkeys(("x1", "x5", "x9"), 13)
    w.lines(*lines)
    while not w.of(ev.QualitySearchBegun):
        World.settle(w)
        if not w.of(ev.QualitySearchBegun):
            w.look()
    w.replay()
    w.settings = changed(w.settings, culprits_max=8)
    w = w.successor().up()
    w.settle()
    (begun,) = w.of(ev.QualitySearchBegun)
    assert len(w.of(ev.QualityReplayBegun)) <= begun.replays_max
    assert w.of(ev.QualityNamed)[0].verdict == "spread"


def test_a_step_that_is_repeated_is_of_the_tier_that_it_was_of() -> None:
    """Who approves what a step could not be run with has it learned as what it is."""
    w = GuardedWorld(guarded(every_steps=3)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "bad", "c", tier="direct")
    while not w.of(ev.QualityNamed):
        World.settle(w)
        if w.replayed:
            w.replay()
        elif w.probed:
            w.look()
    while not (w.asked and isinstance(w.asked[0], fx.RunStep)):
        w.answer()
    step = w.asked.popleft()
    assert isinstance(step, fx.RunStep) and step.again_of == 1
    w.give(inp.StepFailure(step.step, "out of memory", out_of_memory=True, torn=False))
    assert w.state.review.held["a"].tier == "direct"


def test_the_end_of_an_incident_says_how_many_steps_were_taken_back_and_not_how_far_apart_their_numbers_are() -> None:
    w = GuardedWorld(guarded(every_steps=100)).up()
    w.settle()
    w.lines("a", "b", "c")
    w.settle()
    w.give(inp.RollbackWanted(1, "p"))
    w.settle()
    w.poison = {"bad": ITEMS}
    w.lines("d", "bad", source="more")
    w.settle()
    w.give(inp.QualityWanted("p"))
    w.settle()
    (settled,) = w.of(ev.QualitySettled)
    undone = w.of(ev.RollbackStarted)[-1].undone
    assert undone == (5, 4, 1) and settled.taken_back == len(undone)
    stuck = looked_at("a", "bad", "b", "c")
    stuck.look()
    stuck.give(inp.RollbackPlanned(0, 4, error="no way"))
    stuck.give(inp.ResumeRequested("p"))
    assert stuck.of(ev.QualitySettled)[0].taken_back == 0


def test_what_is_being_learned_again_is_not_put_into_the_queue_besides() -> None:
    w = searching("a", "bad", "b")
    while not w.of(ev.QualityNamed):
        w.replay()
    while not (w.state.training.running and w.state.training.running.begun.again_of):
        w.answer()
    w.give(inp.RelearnRequested((("a", "bulk"), ("b", "bulk")), "p"))
    w.settle()
    assert [e.example for e in w.of(ev.ExampleRequeued)] == ["b"] and w.learned() == ["a", "b"]


@pytest.mark.parametrize("asked", ["when it failed", "before"])
def test_weights_that_came_back_and_cannot_be_compared_with_the_baseline_may_become_it(asked: str) -> None:
    """Where the probes were changed meanwhile; the search goes on with those. Asked for before, it waits: they may be
    as bad as what was taken back."""
    w = GuardedWorld(guarded(every_steps=4)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "bad", "b", "c")
    while not w.of(ev.QualityAlarmed):
        World.settle(w)
        w.look()
    if asked == "before":
        w.give(inp.QualityWanted("p", baseline=True))
    World.settle(w)
    w.probes = "others"
    assert w.state.quality.unmeasured and [one.baseline for one in w.probed] == [False]
    w.look()
    assert "`apollod ctl quality baseline` measures these" in w.of(ev.QualityFailed)[-1].reason
    if asked == "when it failed":
        w.pass_time(10)
        w.look()
        assert len(w.of(ev.QualityFailed)) == 2, "again and again"
        w.give(inp.QualityWanted("p", baseline=True))
    w.pass_time(10)
    w.settle()
    looks = w.of(ev.QualityMeasured)
    first = next(n for n, e in enumerate(looks) if e.probes == "others")
    assert [(e.why, e.step) for e in looks[first : first + 3]] == [("baseline", 0), ("baseline", 0), ("restored", 0)]
    assert w.of(ev.QualityNamed)[0].culprits == ("bad",) and w.learned() == ["a", "b", "c"]
    assert len(w.of(ev.QualitySettled)) == 1 and not w.of(ev.QualityAlarmed)[1:]
