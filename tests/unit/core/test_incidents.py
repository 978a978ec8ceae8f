"""After an alarm of the quality guard: who did it, who is held, and what is learned again."""

from typing import Any

import pytest
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.world import Bare, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp


@pytest.mark.parametrize("accumulate", [1, 4])
def test_the_weights_come_out_as_if_the_culprits_had_never_been_learned(accumulate: int) -> None:
    lines = [f"x{n:02}" for n in range(30)]
    lines[7], lines[21] = "bad", "worse"
    every = -(-len(lines) // accumulate)
    w = GuardedWorld(changed(guarded(every_steps=every), accumulate=accumulate)).up()
    w.poison = {"bad": 20, "worse": 15}
    w.lines(*lines)
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    (begun,) = w.of(ev.QualitySearchBegun)
    assert named.verdict == "named" and set(named.culprits) == {"bad", "worse"} and not named.suspects
    assert begun.window == tuple(lines) and named.replays == len(w.of(ev.QualityReplayed)) <= begun.replays_max
    assert sorted(w.learned()) == sorted(set(lines) - {"bad", "worse"})
    assert w.memory == w.as_if_never
    (settled,) = w.of(ev.QualitySettled)
    after = [r.event for r in w.journal if r.seq > next(r.seq for r in w.journal if r.event is settled)]
    looks = [e for e in after if isinstance(e, ev.QualityMeasured)]
    assert [e.why for e in looks] == ["asked"], "whether it is good now is measured before anything else is learned"
    assert w.ended == 1 and not w.of(ev.QualityAlarmed)[1:]


def test_of_two_that_do_harm_only_together_the_first_is_named() -> None:
    class Pair(GuardedWorld):
        def replay(self) -> list[ev.Event]:
            asked = self.replayed[0]
            both = not {"bad", "worse"} & set(asked.left_out)
            self.poison = {"bad": ITEMS} if both else {}
            return super().replay()

    w = Pair(guarded(every_steps=10)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "bad", "b", "c", "d", "e", "worse", "f", "g", "h")
    while not w.of(ev.QualityNamed):
        w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert named.culprits == ("bad",)


def at_too_high_a_rate(**settings: Any) -> GuardedWorld:
    """Sixteen examples, each of which does harm at the rate at which they were learned, and not at a quarter of it."""
    names = [f"x{n:02}" for n in range(16)]
    w = GuardedWorld(changed(guarded(every_steps=16, culprits_max=2), **settings)).up()
    w.poison, w.harmful_lr = dict.fromkeys(names, ITEMS // 4), 0.5
    w.lines(*names)
    w.settle()
    return w


def test_what_a_rate_harmed_is_learned_again_at_the_lower_one_when_a_person_resumes() -> None:
    w = at_too_high_a_rate()
    w.settings = changed(w.settings, lr=0.25)
    after = w.successor()
    assert isinstance(after, GuardedWorld)
    after.up()
    after.settle()
    assert not after.learned(), "another rate alone is no reason to go on"
    after.give(inp.TrainingResumed("p"))
    after.settle()
    again = [e for e in after.of(ev.StepStarted) if e.again_of]
    assert after.learned() == [f"x{n:02}" for n in range(16)] and {e.lr for e in again} == {0.25}
    (settled,) = after.of(ev.QualitySettled)
    assert settled.how.endswith("steps go on, those taken back at a lower learning rate")
    assert after.of(ev.QualityMeasured)[-1].why == "asked" and len(after.of(ev.QualityAlarmed)) == 1
    bare = Bare()
    for e in after.of(ev.StepStarted)[:16]:
        bare.run_step(fx.RunStep(e.step, (e.example,), (e.digest,), 0.25 * e.lr, loss_limit=e.loss_limit))
    assert after.memory == bare.memory, "to the bits of the replay that did no harm"


def test_an_alarm_on_the_weights_of_the_baseline_says_that_the_probes_are_wrong() -> None:
    w = GuardedWorld(guarded(every_steps=0)).up()
    w.give(inp.QualityWanted("p", baseline=True))
    w.settle()
    w.poison, w.journal[-1] = {"x": ITEMS}, w.journal[-1]
    w.learned = lambda: ["x"]  # type: ignore[method-assign]
    w.give(inp.QualityWanted("p"))
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert "the probes say" in named.reason and not w.of(ev.RollbackRequested)
    assert not w.of(ev.QualitySettled), "nothing changed, so the next look would alarm again"
    w.give(inp.TrainingResumed("p"))
    assert w.state.quality.incident is None


def test_a_drop_that_is_no_rate_is_searched_in_units_of_answers_lost() -> None:
    """Of KL the margin is in nats; a replay measures how probable answers still are."""
    kl = 0.0
    w = GuardedWorld(guarded(every_steps=0, kl_margin=1.0)).up()
    w.figures = lambda: {"kl": {f"i{n:02}": kl for n in range(ITEMS)}}  # type: ignore[method-assign]
    w.give(inp.QualityWanted("p", baseline=True))
    w.settle()
    w.lines("x")
    World.settle(w)
    kl = 9.0
    w.give(inp.QualityWanted("p"))
    World.settle(w)
    w.look()
    assert w.state.quality.incident is not None and w.state.quality.incident.margins == {"kl": 0.05}


def test_a_repeated_step_of_several_that_fails_leaves_its_examples_taken_back() -> None:
    class Short(GuardedWorld):
        """Of memory, where a step is repeated."""

        def run_step(self, step: fx.RunStep) -> None:
            if step.again_of and len(step.examples) > 1:
                self.give(inp.StepFailure(step.step, "out of memory", out_of_memory=True, torn=False))
            else:
                super().run_step(step)

    w = Short(changed(guarded(every_steps=2), accumulate=2)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "b", "bad", "c")
    w.settle()
    assert w.learned() == ["c"] and set(w.state.intake.undone) == {"a", "b"} and not w.state.queued
    assert len(w.of(ev.QualitySettled)) == 1 and set(w.state.review.held) == {"bad"}
