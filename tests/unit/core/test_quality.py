"""The quality guard: when the model is measured, and what an alarm does."""

import pytest
from support.guarded_world import ITEMS, STEP_S, GuardedWorld, guarded, poisoned_life
from support.world import SETTINGS, World

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.quality.looking import PART, least_share
from apollod.core.schedules import SECOND_NS


@pytest.fixture
def world() -> GuardedWorld:
    return GuardedWorld().up()


def waiting() -> GuardedWorld:
    """Up, and nobody has answered the probes yet."""
    w = GuardedWorld()
    w.answers = False
    return w.up()


def names(w: GuardedWorld, *kinds: str) -> list[str]:
    return [r.event.kind for r in w.journal if r.event.kind in kinds]


def test_without_a_guard_nothing_is_asked_and_nothing_waits() -> None:
    w = World(SETTINGS)
    w.up()
    w.lines("a")
    w.settle()
    assert [e.step for e in w.of(ev.StepCompleted)] == [1] and not w.of(ev.QualityRequested)


def test_the_baseline_comes_before_the_first_step_and_takes_two_looks() -> None:
    world = waiting()
    world.lines("a")
    assert "probes of quality are asked first" in blocked(Activity.STEP, world.state)
    world.answers = True
    world.settle()
    order = names(world, "quality.measured", "step.completed")
    assert order == ["quality.measured", "quality.measured", "step.completed", "quality.measured"]
    assert world.state.quality.baseline["facts.passed"].figures["i00"] == 1.0 and world.state.quality.at == 0


def test_a_look_is_due_after_so_many_steps_and_weights_stand_still_meanwhile(world: GuardedWorld) -> None:
    world.lines(*"abcdefgh")
    world.settle()
    assert [e.step for e in world.of(ev.QualityMeasured)] == [0, 0, 3, 6, 8], "the last one at the end of the window"
    assert not world.of(ev.QualityAlarmed) and world.state.training.version == 8


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


def test_harmless_steps_raise_no_alarm(world: GuardedWorld) -> None:
    world.poison = {"c": 1}
    world.lines(*(f"x{n}" for n in range(20)), "c", *(f"y{n}" for n in range(40)))
    world.settle()
    assert len(world.of(ev.QualityMeasured)) > 20 and not world.of(ev.QualityAlarmed)


def test_an_alarm_takes_back_what_was_learned_since_the_last_good_look_and_steps_go_on(world: GuardedWorld) -> None:
    world.poison = {"bad": ITEMS}
    world.lines("a", "b", "c", "d", "bad", "e", "f", "g", "h")
    world.settle()
    (alarmed,), (settled,) = world.of(ev.QualityAlarmed), world.of(ev.QualitySettled)
    assert (alarmed.incident, alarmed.step, alarmed.to, alarmed.metrics) == (1, 6, 3, ("facts.passed",))
    drop = alarmed.drops["facts.passed"]
    assert drop.drop == 1.0 and drop.low > 0.05
    (back,) = world.of(ev.RollbackStarted)
    assert back.to == 3 and set(back.examples) == {"d", "bad", "e"}
    assert settled.taken_back == 3 and settled.by == "the quality guard"
    assert world.learned() == ["a", "b", "c", "d", "e", "f", "g", "h"]
    (named,) = world.of(ev.QualityNamed)
    assert (named.verdict, named.culprits, named.suspects) == ("named", ("bad",), ())
    (held,) = world.of(ev.ExampleHeld)
    assert held.example == "bad" and held.by == "the quality guard" and "made facts.passed worse" in held.reason
    assert "bad" in world.state.review.held and not world.state.intake.undone
    assert world.state.quality.incident is None and not blocked(Activity.STEP, world.state)


def test_with_resume_manual_a_person_has_to_say_so() -> None:
    w = GuardedWorld(guarded(resume="manual")).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "b", "bad", "d", "e")
    w.settle()
    reason = blocked(Activity.STEP, w.state)
    assert "raised alarm 1 at step 3 (facts.passed)" in reason and "apollod ctl resume" in reason
    assert not w.of(ev.QualitySettled) and w.learned() == ["a", "b"], "what is innocent is learned again"
    w.give(inp.ResumeRequested("p"))
    w.settle()
    (settled,) = w.of(ev.QualitySettled)
    assert settled.by == "p" and w.learned() == ["a", "b", "d", "e"]


def test_three_alarms_in_a_day_wait_for_a_person(world: GuardedWorld) -> None:
    world.poison = {f"bad{n}": ITEMS for n in range(4)}
    world.lines("bad0", "a", "b", "bad1", "c", "d", "bad2", "e", "f", "bad3", "g", "h", "i")
    world.settle()
    assert len(world.of(ev.QualityAlarmed)) == 3 and len(world.of(ev.QualitySettled)) == 2
    assert "raised alarm 3" in blocked(Activity.STEP, world.state)
    world.give(inp.ResumeRequested("p"))
    world.settle()
    assert len(world.of(ev.QualityAlarmed)) == 4 and world.state.quality.incident is None


def test_a_run_that_fails_counts_as_not_passed_and_is_made_again() -> None:
    world = waiting()
    world.lines("a")
    number = world.probed.pop().number
    world.give(inp.ProbesFailed(number, "nobody answers"))
    reason = blocked(Activity.STEP, world.state)
    assert "nobody answers" in reason and not world.probed and not world.of(ev.StepStarted)
    world.now += SECOND_NS
    world.give(inp.Tick())
    world.answers = True
    world.settle()
    assert world.learned() == ["a"]


def test_a_look_at_weights_that_changed_says_nothing() -> None:
    world = waiting()
    number = world.probed.pop().number
    world.give(inp.ProbesAnswered(number, "p", world.figures(), 0, 1))
    assert [e.reason for e in world.of(ev.QualityFailed)] == ["the weights changed while the probes were asked"]


def test_other_probes_need_another_baseline(world: GuardedWorld) -> None:
    world.lines("a", "b", "c", "d")
    world.settle()
    world.probes = "q"
    world.lines("e", "f", "g")
    World.settle(world)
    world.look()
    assert "apollod ctl quality baseline" in world.of(ev.QualityFailed)[-1].reason
    world.give(inp.QualityWanted("p", baseline=True))
    world.now += 300 * SECOND_NS
    world.give(inp.Tick())
    world.settle()
    assert world.state.quality.probes == "q" and world.state.quality.at == 7 and len(world.learned()) == 7


def test_somebody_can_ask_for_a_look_without_a_guard_that_looks_by_itself() -> None:
    w = GuardedWorld(guarded(every_steps=0)).up()
    w.lines("a", "b")
    w.settle()
    assert w.learned() == ["a", "b"] and not w.probed
    w.give(inp.QualityWanted("p"))
    w.settle()
    assert [e.why for e in w.of(ev.QualityMeasured)] == ["baseline", "baseline"], "there is nothing to compare with yet"
    w.poison = {"c": ITEMS}
    w.lines("c")
    w.settle()
    w.give(inp.QualityWanted("p"))
    w.settle()
    assert [e.why for e in w.of(ev.QualityMeasured)][2:] == ["asked", "restored"] and len(w.of(ev.QualityAlarmed)) == 1


def test_a_way_back_that_is_not_there_waits_for_a_person() -> None:
    w = GuardedWorld().up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "b", "bad", "d")
    while not w.of(ev.QualityAlarmed):
        World.settle(w)
        w.look()
    plan = next(one for one in w.asked if type(one).__name__ == "PlanRollback")
    w.asked.remove(plan)
    w.give(inp.RollbackPlanned(plan.to, plan.version, error="the base is gone"))  # type: ignore[union-attr]
    w.settle()
    assert "the base is gone" in blocked(Activity.STEP, w.state) and w.state.quality.incident is not None
    w.give(inp.ResumeRequested("p"))
    w.settle()
    assert w.of(ev.QualitySettled)[0].by == "p" and "d" in w.learned()


def test_a_rollback_by_a_person_during_an_incident_is_the_way_back() -> None:
    w = GuardedWorld(guarded(resume="manual")).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "b", "c", "d", "bad", "e", "f")
    w.settle()
    w.give(inp.RollbackWanted(1, "p"))
    w.settle()
    (settled,) = w.of(ev.QualitySettled)
    assert settled.by == "p" and settled.how == "p wants the weights of step 1"
    assert w.learned() == ["a", "f"] and not w.of(ev.QualityAlarmed)[1:] and w.ended == 2


@pytest.mark.parametrize("instant", range(1, 70, 2))
def test_a_crash_at_any_moment_of_an_incident_ends_in_the_same(instant: int) -> None:
    def life(dies_at: int) -> tuple[list[str], int, int]:
        w = poisoned_life(GuardedWorld(), dies_at)
        assert len(w.of(ev.QualityNamed)) == 1 and w.state.review.held.keys() == {"bad"}
        return w.learned(), len(w.of(ev.QualityAlarmed)), len(w.of(ev.QualitySettled))

    assert life(instant) == life(0) == (["a", "b", "d", "e"], 1, 1)


def test_an_alarm_after_a_rollback_by_a_person_does_not_want_what_that_took_back(world: GuardedWorld) -> None:
    world.lines("a", "b", "c", "d")
    world.settle()
    assert world.state.quality.good == 3
    world.give(inp.RollbackWanted(1, "p"))
    world.settle()
    world.poison = {"bad": ITEMS}
    world.lines("bad", "e", "f", source="more")
    world.settle()
    (alarmed,) = world.of(ev.QualityAlarmed)
    assert alarmed.to == 1 and len(world.of(ev.QualitySettled)) == 1 and world.learned() == ["a", "e", "f"]


def test_a_baseline_whose_file_is_gone_at_the_start_is_told_and_raises_no_alarm() -> None:
    """Looks go on without what is compared with it, until there is a new one."""
    w = GuardedWorld()
    w.more = {"kl": {"i00": 0.0, "i01": 0.0}}
    w.up()
    again = w.successor()
    again.no_references = "it is gone"
    again.up()
    assert again.of(ev.QualityReferencesLost) == [ev.QualityReferencesLost(digest="r", reason="it is gone")]
    assert again.state.quality.references_lost == "it is gone"
    again.lines(*"abcdef")
    again.settle()
    assert again.of(ev.QualityMeasured)[-1].figures.keys() == {"facts.passed"} and not again.of(ev.QualityAlarmed)
    assert again.state.training.version == 6
    again.give(inp.QualityWanted("t", baseline=True))
    again.settle()
    assert again.state.quality.references_lost == "" and again.state.quality.at == 6


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
    world.give(inp.ResumeRequested("p"))
    assert not blocked(Activity.STEP, world.state) or world.state.quality.incident is not None


def test_probes_that_cannot_be_asked_after_a_rollback_do_not_hold_the_search() -> None:
    world = GuardedWorld().up()
    world.poison = {"bad": ITEMS}
    world.answers = False
    world.lines("a", "bad", "c")
    world.settle()
    world.look()
    world.settle()
    assert world.probed[0].share == 1.0 and not world.of(ev.QualitySearchBegun)
    assert "the probes are asked of the weights that are back" in blocked(Activity.STEP, world.state)
    world.give(inp.ProbesFailed(world.probed.pop(0).number, "no tokenizer", "unable"))
    world.answers = True
    world.settle()
    assert world.of(ev.QualityNamed)[0].culprits == ("bad",) and world.learned() == ["a", "c"]


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


def test_ruin_is_an_alarm_in_the_first_look_at_all_probes() -> None:
    """Beside thirty metrics that are well, which one look alone has to outweigh otherwise."""
    world = GuardedWorld()
    world.more = {f"q{n}.passed": {f"i{m:02}": 1.0 for m in range(20)} for n in range(30)}
    world.up()
    world.poison = {"bad": 14}
    world.lines("a", "bad", "c")
    world.settle()
    (alarmed,) = world.of(ev.QualityAlarmed)
    assert (alarmed.step, alarmed.to, alarmed.metrics) == (3, 0, ("facts.passed",))
