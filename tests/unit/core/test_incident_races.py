"""A repeated step that fails (transcripts/incident_races.txt has what people do meanwhile)."""

from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.world import World

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp


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
