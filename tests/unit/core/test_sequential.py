"""When a metric of the quality guard is worse than its baseline; by simulation how often it is wrong."""

import math
from functools import partial
from random import Random

import pytest

from apollod.core.facts.quality import sequential
from apollod.core.facts.quality.sequential import alarmed, alarms, baseline_of, drops, interval, metric, renewed, seen
from benchmarks import quality_statistics as simulation

NOTHING = [0.0] * 60
WORSE = [1.0] * 12 + [0.0] * 48


def after(one, *looks):
    for look in looks:
        one = seen(one, look)
    return one


def test_answers_that_stay_the_same_never_alarm():
    one = after(metric(0.05), *[NOTHING] * 2000)
    assert not alarmed(one) and one.e_value < 1 and (one.looks, one.drop) == (2000, 0.0)


def test_a_drop_is_found_as_soon_after_many_quiet_looks_as_after_none():
    """A martingale since the baseline would have lost its capital."""
    early, late = metric(0.05), after(metric(0.05), *[NOTHING] * 500)
    took = []
    for one in (early, late):
        looks = 0
        while not alarmed(one, metrics=8):
            one, looks = seen(one, WORSE), looks + 1
        took.append(looks)
    assert took == [2, 2]


def test_a_drop_within_the_margin_is_none_however_often_it_is_seen():
    assert not alarmed(after(metric(0.2), *[WORSE] * 1000))


def test_the_same_few_items_are_not_more_evidence_each_time():
    """8 of 60 that stay down at a margin of 3: with time the detector is certain of the items, one look is not of what
    they stand for."""
    one = after(metric(0.05), *[[1.0] * 8 + [0.0] * 52] * 200)
    assert one.e_value > 1e6 and one.alone < sequential.ALONE
    assert not alarmed(one) and not alarms({"a": one})


def test_more_metrics_demand_more_of_each():
    one = after(metric(0.05), WORSE, WORSE)
    assert alarmed(one) and not alarmed(one, metrics=int(one.e_value / sequential.LOOKS) + 1)


def test_several_metrics_that_say_it_less_surely_are_enough_together():
    one, quiet = after(metric(0.05), WORSE, WORSE), metric(0.05)
    needs = int(one.e_value / sequential.LOOKS) + 1
    few = {"b": one, **{f"q{n}": quiet for n in range(needs - 1)}}
    more = {**few, "q0": one}
    assert alarms(few) == () and alarms(more) == ("b", "q0")
    assert alarms({}) == ()


def failing(count: int, of: int) -> list[float]:
    return [1.0] * count + [0.0] * (of - count)


@pytest.mark.parametrize(("count", "of"), [(10, 10), (12, 20), (14, 40)])
def test_one_look_at_all_probes_that_sees_ruin_is_an_alarm(count: int, of: int):
    """1.0 to 0.42 of 20 facts passed, and so did ten refusals turned into answers; of a part it is only doubt."""
    metrics = {
        **{f"q{n}": after(metric(0.05), [0.0] * 20) for n in range(30)},
        "ruin": after(metric(0.05), failing(count, of)),
    }
    assert alarms(metrics, whole=True) == ("ruin",) and alarms(metrics) == ()


@pytest.mark.parametrize("of", [10, 20, 24, 40, 75, 180])
def test_a_group_of_which_all_passed_is_judged_as_by_a_binomial_test(of: int):
    """At most 2 looks in 100,000 at the margin have as many failures as are an alarm in one look."""
    blank = metric(0.05, failing=0.0)
    least = next(k for k in range(of + 1) if alarms({"a": seen(blank, failing(k, of))}, whole=True))
    assert math.fsum(math.comb(of, k) * 0.05**k * 0.95 ** (of - k) for k in range(least, of + 1)) < 2.1e-5
    loss = next((k for k in range(of + 1) if alarms({"a": seen(metric(0.05), failing(k, of))}, whole=True)), of + 1)
    assert least < loss, "and it takes fewer than where each item may rise as well"


def test_where_items_failed_at_the_baseline_more_have_to_fall():
    looks = [
        next(k for k in range(41) if alarms({"a": seen(metric(0.05, failing=share), failing(k, 40))}, whole=True))
        for share in (0.0, 0.1, 0.3)
    ]
    assert looks == sorted(looks) and looks[0] < looks[-1]


@pytest.mark.parametrize("of", [10, 15, 20, 40])
def test_a_mean_at_its_margin_looks_like_ruin_once_in_a_million_looks(of: int):
    least = next(k for k in range(of + 1) if after(metric(0.05), failing(k, of)).far >= sequential.ALONE)
    assert sum(math.comb(of, k) * 0.05**k * 0.95 ** (of - k) for k in range(least, of + 1)) < 1e-6


def test_a_look_without_items_says_nothing_and_order_does_not_matter():
    one = after(metric(0.05), WORSE)
    assert seen(one, []) is one
    assert after(metric(0.05), WORSE[::-1]) == one


def test_what_was_seen_of_other_weights_is_forgotten():
    assert renewed(after(metric(0.05), WORSE)) == metric(0.05)


def test_figures_beyond_the_scale_count_as_the_scale():
    one = seen(metric(0.05, 0.5), [3.0, math.inf, -math.inf, -9.0])
    assert one.drop == 0.0 and one == seen(metric(0.05, 0.5), [0.5, 0.5, -0.5, -0.5])


@pytest.mark.parametrize(("margin", "scale"), [(-0.1, 1.0), (1.0, 1.0), (0.1, math.inf), (math.nan, 1.0)])
def test_a_margin_that_cannot_be_tested_is_refused(margin, scale):
    with pytest.raises(ValueError, match="margin"):
        metric(margin, scale)


def test_a_figure_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        seen(metric(0.05), [0.0, math.nan])


def test_the_interval_covers_the_mean_of_what_items_stand_for():
    """At 0.95, in 400 draws of 60 items."""
    rng, covered = Random(1), 0
    for _ in range(400):
        found = [rng.choices([1.0, -1.0, 0.0], [0.2, 0.1, 0.7])[0] for _ in range(60)]
        low, high = interval(found, 1.0)
        assert low <= sum(found) / 60 <= high
        covered += low <= 0.1 <= high
    assert covered >= 380
    assert interval([], 0.5) == (-0.5, 0.5)


def test_a_baseline_says_by_how_much_it_may_be_wrong():
    exact = baseline_of([{"a": 1.0, "b": 0.0}] * 2)
    assert (exact.figures, exact.allowance) == ({"a": 1.0, "b": 0.0}, 0.0)
    varied = baseline_of([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.0}])
    assert varied.figures == {"a": 0.5, "b": 0.0}
    assert varied.allowance == pytest.approx(3.29 * math.sqrt(0.5 / 2) / 2)
    for bad in ([{"a": 1.0}], [{}, {}], [{"a": 1.0}, {"b": 1.0}]):
        with pytest.raises(ValueError, match="at least 2 of the same items"):
            baseline_of(bad)


def test_an_item_that_could_not_be_measured_counts_as_not_passed():
    before = baseline_of([{"a": 1.0, "b": 1.0, "c": 0.5}] * 2)
    assert drops(before, {"b": None, "a": 0.0, "new": 0.0}, "lower", 1.0) == [1.0, 1.0]
    assert drops(before, {"c": 0.75, "a": None}, "higher", 0.5) == [0.5, 0.25]
    never = baseline_of([{"a": 0.0, "b": 1.0}] * 2)
    assert drops(never, {"a": None, "b": 1.0}, "lower", 1.0) == [0.0, 0.0], "it did not pass at the baseline, either"


@pytest.mark.parametrize("make", [simulation.flaky, simulation.sampled, simulation.harmless, simulation.at_margin])
def test_without_a_cause_there_is_no_alarm(make):
    """The benchmark at a small size; all of it: docs/benchmarks/2026-11-22-quality-statistics.md."""
    assert simulation.false_alarms(make, metric(0.05), guards=1, looks=250, metrics=4)["chosen"] == 0


def test_a_real_drop_is_found_within_the_looks_that_the_simulation_says():
    for share, looks in ((0.2, 4), (0.3, 2)):
        make = partial(simulation.fallen, share=share)
        assert max(simulation.looks_to_alarm(make, simulation.flaky, metric(0.05), 2, metrics=4)["chosen"]) <= looks
