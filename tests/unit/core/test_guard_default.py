"""The quality guard where nobody set anything: on, cheap, and never in the way of an engine that cannot answer."""

import pytest
from support.guarded_world import GuardedWorld, guarded
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.quality.looking import UNLOOKED_MAX, due, least_share, quiet_s, share, silent_groups
from apollod.core.facts.quality.sequential import Baseline
from apollod.core.facts.quality.state import QualityState
from apollod.core.facts.training import Learned
from apollod.core.rules.quality.policy import BASELINE_ATTEMPTS
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import QualitySettings

DEFAULT = changed(SETTINGS, every_steps=QualitySettings().every_steps)


def asked_by(settings: ev.Settings = DEFAULT) -> GuardedWorld:
    """Up, with a line that waits, and nobody answers."""
    world = GuardedWorld(settings)
    world.answers = False
    world.up()
    world.lines("a")
    World.settle(world)
    return world


def fail(world: GuardedWorld, **terms: str) -> None:
    world.give(inp.ProbesFailed(world.probed.pop(0).number, "501", **terms))  # type: ignore[arg-type]
    World.settle(world)


def test_an_engine_that_has_no_such_answers_costs_one_line_and_steps_go_on() -> None:
    world = asked_by()
    fail(world, cause="unable")
    (failed,) = world.of(ev.QualityFailed)
    assert failed.gives_up and failed.reason == "501; steps go on without the guard"
    world.lines("b", source="more")
    World.settle(world)
    world.now += 10_000 * SECOND_NS
    world.give(inp.Tick())
    World.settle(world)
    assert world.learned() == ["a", "b"] and not world.probed and len(world.of(ev.QualityFailed)) == 1
    again = world.successor()
    again.answers = False
    again.up()
    assert again.probed, "the next start tries again"


def test_somebody_who_asks_is_answered_all_the_same() -> None:
    world = asked_by()
    fail(world, cause="unable")
    world.give(inp.QualityWanted("p"))
    fail(world, cause="unable")
    assert world.state.quality.asked == "" and not world.probed, "once"
    world.give(inp.QualityWanted("p"))
    world.answers = True
    world.settle()
    assert world.state.quality.baseline and not world.state.quality.unable


@pytest.mark.parametrize("cause", ["engine", "other"])
def test_an_engine_that_gives_no_answer_is_not_waited_for_without_end(cause: str) -> None:
    """A person's file that cannot be used is: he asked for it."""
    world = asked_by()
    for _ in range(BASELINE_ATTEMPTS):
        assert world.probed and not world.learned()
        fail(world, cause=cause)
        world.now += 400 * SECOND_NS
        world.give(inp.Tick())
        World.settle(world)
    assert (world.learned() == ["a"]) is (cause == "engine") and bool(world.probed) is (cause == "other")


def test_an_engine_that_breaks_after_the_baseline_is_waited_for() -> None:
    """Perhaps it is what was learned that broke it."""
    world = GuardedWorld(guarded(every_steps=1)).up()
    world.settle()
    world.lines("a")
    World.settle(world)
    for _ in range(2 * BASELINE_ATTEMPTS):
        fail(world, cause="engine")
        world.now += 400 * SECOND_NS
        world.give(inp.Tick())
    world.lines("b", source="more")
    World.settle(world)
    assert world.learned() == ["a"] and world.probed


def test_a_baseline_without_a_figure_is_none_and_steps_go_on() -> None:
    world = asked_by()
    for _ in range(2):
        number = world.probed.pop(0).number
        world.give(inp.ProbesAnswered(number, "p", {"facts.passed": {"a": None}}, 0, 0, seconds=1.0))
        World.settle(world)
    assert world.learned() == ["a"] and not world.probed and "without the guard" in world.state.quality.error


# --- what it costs ----------------------------------------------------------------------------------------------------


def measured(since: int, busy_s: float, full_s: float = 100.0, items: int = 40, **more: object) -> QualityState:
    return QualityState(
        baseline={"facts.passed": Baseline({f"i{n}": 1.0 for n in range(items)}, 0.0)}, since=since, busy_s=busy_s,
        full_s=full_s, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_look_waits_until_the_steps_since_the_last_one_pay_for_it() -> None:
    settings = QualitySettings(every_steps=50, cost=0.05)
    assert least_share(measured(0, 0.0)) == 3 / 40
    assert due(measured(50, 299.0), settings) is None, "7.5 s are half of 5 % of 300 s"
    assert due(measured(50, 301.0), settings) == "steps"
    assert due(measured(49, 301.0), settings) is None
    assert due(measured(UNLOOKED_MAX, 1.0), settings) == "steps", "whatever it costs"
    assert due(measured(50, 1.0), QualitySettings(every_steps=50, cost=0.0)) == "steps"


def test_all_probes_are_asked_once_the_other_half_pays_for_them() -> None:
    """A part of them can miss what half of the others show, so that only all of them make weights good."""
    settings = QualitySettings(every_steps=50, cost=0.05)
    assert share(measured(50, 400.0, busy_since_whole_s=3999.0), settings, "steps") == 0.1
    whole = measured(50, 400.0, busy_since_whole_s=4000.0)
    assert share(whole, settings, "steps") == share(whole, settings, "window") == 1.0
    assert due(measured(50, 1.0, busy_since_whole_s=4000.0), settings) == "steps", "that look is paid for"
    window = [
        Learned(step=n, examples=("x",), digests=("d",), lr=1e-4, window=1, tier="direct")
        for n in range(1, UNLOOKED_MAX + 1)
    ]
    assert share(measured(50, 400.0, window=window, good=0), settings, "steps") == 1.0
    assert share(measured(50, 400.0, window=window, good=1), settings, "steps") == 0.1


def test_time_in_which_nothing_waits_pays_for_the_end_of_a_window() -> None:
    settings = QualitySettings(every_steps=50, cost=0.05)
    own = measured(3, 10.0, window_ended=True)
    assert quiet_s(own, settings) == pytest.approx(290.0) and quiet_s(measured(3, 400.0), settings) == 5.0
    assert due(own, settings) is None and due(own, settings, quiet=True) == "window"
    assert quiet_s(own, QualitySettings(cost=0.0)) == 5.0


# --- what the model does not pass -------------------------------------------------------------------------------------


def run(**passes: tuple[int, int]) -> dict[str, dict[str, float]]:
    return {f"{name}.passed": {f"{name}{n}": float(n < k) for n in range(of)} for name, (k, of) in passes.items()}


def test_a_group_of_which_too_few_pass_for_anything_to_show_is_silent() -> None:
    found = run(facts=(18, 20), hard=(2, 40), format=(5, 15), none=(0, 9), one=(1, 1), two=(2, 2))
    assert silent_groups(found, QualitySettings()) == ("hard", "none", "one")
    assert silent_groups(found | {"hard.loss": {"t": 3.0}}, QualitySettings()) == ("none", "one"), "its texts are asked"


class Hard(GuardedWorld):
    """Of the group `hard` the model passes 2 of 40."""

    def look(self) -> list[ev.Event]:
        hard = {} if "hard" in self.probed[0].without else run(hard=(2, 40))
        self.more = {name: dict(items) for name, items in hard.items()}
        return super().look()


def test_looks_leave_out_what_the_first_run_of_the_baseline_found_silent() -> None:
    asked = list[fx.MeasureQuality]()

    class Noting(Hard):
        def look(self) -> list[ev.Event]:
            asked.append(self.probed[0])
            return super().look()

    world = Noting().up()
    world.settle()
    world.lines("a", "b", "c")
    world.settle()
    assert [one.without for one in asked] == [(), ("hard",), ("hard",)]
    own = world.state.quality
    assert own.silent == {"hard": (2, 40)} and own.baseline.keys() == {"facts.passed"}
    assert list(world.of(ev.QualityMeasured)[-1].after) == ["facts.passed"]
    world.give(inp.QualityWanted("p", baseline=True))
    world.settle()
    assert [one.without for one in asked[3:]] == [(), ("hard",)], "a new baseline asks all"
    assert [one.tries for one in asked] == [True, False, False, True, False], "a few of a large group, once"
    assert [one.known for one in asked] == ["", "", own.probes, "", ""], "a look asks what the baseline is of"
