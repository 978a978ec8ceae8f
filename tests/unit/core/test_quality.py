"""The quality guard: when the model is measured, and what an alarm does."""

import pytest
from support.guarded_world import ITEMS, STEP_S, GuardedWorld

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.quality.looking import PART, least_share


@pytest.fixture
def world() -> GuardedWorld:
    return GuardedWorld().up()


def test_what_a_part_of_the_probes_says_makes_no_weights_good() -> None:
    """Three of each group missed what a whole look would have shown, and an alarm went back to just those weights."""
    world = GuardedWorld()
    world.seconds = 0.6 * PART * 0.05 * STEP_S * 3 / least_share(GuardedWorld().up().state.quality)
    world.up()
    world.lines("a", "b", "c")
    world.settle()
    (look,) = [e for e in world.of(ev.QualityMeasured) if e.why != "baseline"]
    assert look.share < 1.0 and (world.state.quality.good, world.state.quality.looked) == (0, 3)
    world.poison = {"bad": ITEMS}
    world.lines("d", "bad", "e", source="more")
    world.settle()
    (alarmed,) = world.of(ev.QualityAlarmed)
    assert (alarmed.step, alarmed.to) == (6, 0) and world.learned() == ["a", "b", "c", "d", "e"]


class Lucky(GuardedWorld):
    """A look at the weights of one step passes once, and not when they are back."""

    lucky = 6

    def figures(self) -> dict[str, dict[str, float | None]]:
        figures = super().figures()
        if self.state.training.version == self.lucky and not self.of(ev.QualityAlarmed):
            figures["facts.passed"] = dict.fromkeys(figures["facts.passed"], 1.0)
        return figures


@pytest.mark.parametrize("lucky", [3, 6])
def test_weights_that_an_alarm_went_back_to_are_measured_and_bad_ones_give_way_to_earlier_ones(lucky: int) -> None:
    world = Lucky()
    world.lucky = lucky
    world.up()
    world.poison = {"bad": ITEMS}
    lines = list("abcdefghi")
    lines[lucky - 2] = "bad"
    world.lines(*lines)
    world.settle()
    (alarmed,), (worse,), (named,) = world.of(ev.QualityAlarmed), world.of(ev.QualityNotGood), world.of(ev.QualityNamed)
    assert (alarmed.step, alarmed.to) == (lucky + 3, lucky)
    assert (worse.step, worse.to, worse.metrics) == (lucky, lucky - 3, ("facts.passed",))
    assert [e.to for e in world.of(ev.RollbackStarted)] == [lucky, lucky - 3]
    (begun,) = world.of(ev.QualitySearchBegun)
    assert begun.window == tuple(lines[lucky - 3 : lucky + 3]) and named.culprits == ("bad",)
    assert world.of(ev.QualitySettled)[0].taken_back == 6 and "bad" not in world.learned()
    assert sorted(world.learned()) == sorted(set(lines) - {"bad"}) and not blocked(Activity.STEP, world.state)


def test_where_no_earlier_weights_are_good_a_person_has_to_say_so(world: GuardedWorld) -> None:
    world.lines("a", "b")
    world.settle()
    world.lines("bad", source="more")
    world.poison = {"bad": ITEMS, "a": ITEMS, "b": ITEMS}
    world.figures = lambda: {"facts.passed": {f"i{n:02}": 0.0 for n in range(ITEMS)}}  # type: ignore[method-assign]
    world.settle()
    assert [e.to for e in world.of(ev.RollbackStarted)][-1] == 0
    assert world.of(ev.QualityMeasured)[-1].why == "restored" and not world.of(ev.QualitySettled)
    assert "apollod ctl resume" in blocked(Activity.STEP, world.state)
    world.give(inp.TrainingResumed("p"))
    assert not blocked(Activity.STEP, world.state) or world.state.quality.incident is not None


def test_harm_that_is_spread_over_small_groups_is_seen_in_all_of_them_together() -> None:
    """A quarter of five groups, and less of the sixth: in none of them is one look enough."""
    groups = {f"g{n}.passed": 15 for n in range(5)}

    class Spread(GuardedWorld):
        def figures(self) -> dict[str, dict[str, float | None]]:
            worse = "bad" in self.learned()
            more = {name: {f"i{m:02}": float(m > 3 or not worse) for m in range(of)} for name, of in groups.items()}
            return super().figures() | more

    world = Spread().up()
    world.poison = {"bad": 7}
    world.lines("a", "bad", "c")
    world.settle()
    (alarmed,) = world.of(ev.QualityAlarmed)
    assert (alarmed.step, alarmed.to) == (3, 0) and set(alarmed.metrics) == {"facts.passed", *groups}
    assert world.of(ev.QualityNamed)[0].culprits == ("bad",)
