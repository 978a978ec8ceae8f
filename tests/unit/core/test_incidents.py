"""After an alarm of the quality guard: who did it, who is held, and what is learned again."""

from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.world import World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp


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
