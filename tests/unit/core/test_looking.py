"""What a look says of each metric: which way is worse, by how much, and which may raise an alarm."""

import math

import msgspec
import pytest
from support.guarded_world import GuardedWorld, guarded

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.quality.looking import begun, doubt, fallen_together, fell, is_watched, looked, worse
from apollod.core.facts.quality.sequential import Baseline, Metric, alarms, baseline_of, metric, seen
from apollod.core.facts.quality.state import QualityState
from apollod.core.rules.quality.status import last_look
from apollod.core.settings import QualitySettings

ITEMS = [f"i{n:02}" for n in range(40)]
SETTINGS = QualitySettings(margin=0.05, kl_margin=0.4)


def of(name: str, value: float) -> dict[str, dict[str, float | None]]:
    return {name: dict.fromkeys(ITEMS, value)}


def guard(**values: float) -> QualityState:
    runs = {name: [dict.fromkeys(ITEMS, value)] * 2 for name, value in values.items()}
    return QualityState(baseline={name: baseline_of(one) for name, one in runs.items()})


@pytest.mark.parametrize(
    ("name", "worse_is", "margin"),
    [("facts.passed", "lower", 0.05), ("en.loss", "higher", 0.1), ("repetition", "higher", 0.1),
     ("kl", "higher", 0.4), ("entropy", "lower", 0.5), ("length_drift", "higher", 1.0)],
)  # fmt: skip
def test_which_way_is_worse_and_by_how_much(name: str, worse_is: str, margin: float) -> None:
    assert worse(name) == worse_is
    one = begun(name, SETTINGS, Baseline({}, 0.01))
    assert one.margin == pytest.approx(margin + 0.01) and one.scale == (1.0 if "passed" in name else 10 * margin)


def looks(own: QualityState, settings: QualitySettings, name: str, value: float) -> tuple[str, ...]:
    """Metrics that are worse after five looks that say the same."""
    for _ in range(5):
        own.metrics = looked(own, settings, of(name, value))
    return alarms(own.metrics)


@pytest.mark.parametrize(
    ("name", "before", "harmless", "harmful"),
    [("kl", 0.0, 0.35, 3.0), ("entropy", 3.0, 2.6, 0.1), ("length_drift", 0.0, 0.9, 5.0), ("en.loss", 2.0, 2.05, 4.0)],
)
def test_each_alarms_beyond_its_margin_and_not_within_it(
    name: str, before: float, harmless: float, harmful: float
) -> None:
    assert looks(guard(**{name: before}), SETTINGS, name, harmless) == ()
    assert looks(guard(**{name: before}), SETTINGS, name, harmful) == (name,)


def test_entropy_that_rises_is_no_alarm_since_a_collapse_lowers_it() -> None:
    assert looks(guard(entropy=0.5), SETTINGS, "entropy", 8.0) == ()


@pytest.mark.parametrize("name", ["kl", "entropy", "length_drift", "en.loss", "repetition"])
def test_with_a_kl_margin_of_0_only_rates_raise_an_alarm(name: str) -> None:
    off = QualitySettings(kl_margin=0.0)
    assert not is_watched(name, off) and is_watched(name, SETTINGS)
    own = guard(**{name: 1.0})
    own.metrics = looked(own, off, of(name, 50.0 if name != "entropy" else 0.0))
    assert own.metrics == {} and begun(name, off, own.baseline[name]).scale == 1.0, "a report can still be made of it"


def test_a_margin_that_changed_counts_at_once() -> None:
    """What looks said of the old one does not; an unchanged one keeps its evidence."""
    own, before = guard(kl=0.0, entropy=2.0), of("kl", 3.0) | of("entropy", 2.0)
    for _ in range(5):
        own.metrics = looked(own, SETTINGS, before)
    assert alarms(own.metrics) == ("kl",)
    wider = msgspec.structs.replace(SETTINGS, kl_margin=3.5)
    (shown,) = [one for one in last_look(own, wider) if one.name == "kl"]
    assert shown.margin == 3.5, "as it is shown, too"
    after = looked(own, wider, before)
    assert (after["kl"].margin, after["kl"].looks, after["entropy"].looks) == (3.5, 1, 6) and alarms(after) == ()
    own.metrics = looked(own, SETTINGS, of("kl", 0.1))
    narrower = msgspec.structs.replace(SETTINGS, kl_margin=0.05)
    assert looked(own, narrower, of("kl", 0.1))["kl"].margin == 0.05


def test_a_rate_is_watched_also_without_a_margin() -> None:
    assert is_watched("facts.passed", QualitySettings(margin=0.0))


def test_without_figures_a_metric_stays_as_it_was() -> None:
    own = guard(kl=0.0, facts=0.0)
    own.metrics = looked(own, SETTINGS, of("kl", 0.3))
    assert looked(own, SETTINGS, {})["kl"] == own.metrics["kl"]


def test_of_a_rate_those_that_fell_tell_who_did_it_and_of_anything_else_all() -> None:
    rate = Baseline({"a": 1.0, "b": 1.0, "c": 0.0}, 0.0)
    assert fell(rate, "facts.passed", {"a": 0.0, "b": 1.0, "c": 0.0, "new": 0.0}) == ("a",)
    surprised = Baseline({"a": 1.0, "b": 0.9, "c": 0.2}, 0.0)
    assert fell(surprised, "entropy", {"a": 0.1, "b": 0.8, "c": 0.1}) == ("a", "b", "c")


def test_what_a_look_costs_is_reckoned_by_what_it_asked_and_not_by_what_was_wanted() -> None:
    world = GuardedWorld().up()
    world.answers = False
    world.give(inp.QualityWanted("anna"))
    (asked,) = world.probed
    world.give(inp.ProbesAnswered(asked.number, "p", world.figures(), 0, 0, seconds=10.0, share=0.5))
    assert world.of(ev.QualityMeasured)[-1].share == 0.5 and world.state.quality.full_s == 20.0


def test_a_baseline_keeps_the_answers_that_pass_and_a_look_those_that_passed_then_and_fail_now() -> None:
    world = GuardedWorld(guarded(every_steps=2)).up()
    world.poison = {"bad": 3}
    world.lines("a", "bad")
    world.settle()
    first, *_, look = (e for e in world.of(ev.QualityMeasured) if e.why in ("baseline", "steps"))
    assert {*first.answers.values()} == {"right"} and len(first.answers) == len(first.figures["facts.passed"])
    assert look.answers == {"i00": "wrong", "i01": "wrong", "i02": "wrong"}


def metrics_after(drops: list[list[float]]) -> dict[str, Metric]:
    one = metric(0.05)
    for look in drops:
        one = seen(one, look)
    return {"facts.passed": one}


def test_many_looks_that_each_say_little_are_followed_by_one_at_all_probes_and_only_when_they_say_more_by_another() -> (
    None
):
    little, looks = [1.0, 0.0, 1.0], 1
    while looks < 20 and not doubt(metrics_after([little] * looks), 0.05, {}).ask_all:
        looks += 1
    assert 4 < looks < 20
    after = metrics_after([little] * looks)
    cleared = {name: one.e_value for name, one in after.items()}
    assert not doubt(metrics_after([little] * (looks + 1)), 0.05, cleared).ask_all, "they were asked just now"
    assert doubt(metrics_after([little] * (looks * 3)), 0.05, cleared).ask_all


def test_weights_are_good_only_if_all_probes_say_so() -> None:
    bad, fine = metrics_after([[1.0] * 3]), metrics_after([[0.0] * 40])
    assert doubt(bad, 0.1, {}) == (True, False)
    assert doubt(bad, 1.0, {}) == (False, False)
    assert doubt(fine, 0.1, {}) == (False, False), "a part of them is not all"
    assert doubt(fine, 1.0, {}) == (False, True)


def test_what_nothing_passed_is_no_metric_among_which_an_alarm_has_to_stand_out() -> None:
    own = guard(**{"none.passed": 0.0, "some.passed": 1.0})
    assert list(looked(own, SETTINGS, {**of("none.passed", 0.0), **of("some.passed", 1.0)})) == ["some.passed"]


def together(fail: int, of: int, margin: float = 0.05) -> tuple[str, ...]:
    """The rates that fell where so many items of all fail, evenly spread over ten groups."""
    own, settings = QualityState(), QualitySettings(margin=margin)
    figures: dict[str, dict[str, float | None]] = {f"g{n}.passed": {} for n in range(10)}
    for n in range(of):
        figures[f"g{n % 10}.passed"][f"i{n:04}"] = float(n >= fail)
    own.baseline = {name: Baseline(dict.fromkeys(items, 1.0), 0.0) for name, items in figures.items()}
    return fallen_together(own, settings, looked(own, settings, figures), figures)


def test_22_of_200_items_over_all_groups_are_an_alarm_in_one_look_and_21_are_none() -> None:
    """A quarter of the items that a small model passes shows so in 99 of 100 first looks."""
    assert len(together(22, 200)) == 10 and together(21, 200) == ()
    assert sum(math.comb(200, k) * 0.25**k * 0.75 ** (200 - k) for k in range(22, 201)) > 0.99


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.1])
def test_all_items_together_at_their_margin_ring_in_one_look_of_a_thousand_at_most(margin: float) -> None:
    for of in (40, 60, 100, 150, 200, 300, 400, 500, 740, 1000, 1380):
        least, most = 0, of  # of items that fail
        while least < most:
            middle = (least + most) // 2
            least, most = (least, middle) if together(middle, of, margin) else (middle + 1, most)
        below = [math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1) for k in range(least)]
        chance = (math.exp(c + k * math.log(margin) + (of - k) * math.log1p(-margin)) for k, c in enumerate(below))
        assert 1.0 - math.fsum(chance) < 1e-3, (of, least)
