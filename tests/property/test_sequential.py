"""What makes the guard's test valid: the mean of its e-value is at most 1 where the mean drop is at most the margin,
computed over all that can happen."""

import math
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from apollod.core.facts.quality.sequential import alarmed, metric, seen

CHANCES = st.tuples(st.floats(0, 1), st.floats(0, 1))
DROPS = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=2, max_size=7)


@settings(max_examples=60, deadline=None)
@given(st.lists(CHANCES, min_size=1, max_size=4), st.floats(0, 0.9))
def test_independent_items_with_means_of_their_own(items, slack):
    """Each falls with a chance, rises with another; the margin is their mean drop or more."""
    chances = [(down, (1 - down) * up) for down, up in items]
    margin = min(0.99, max(0.0, math.fsum(down - up for down, up in chances) / len(chances)) + slack)
    mean = 0.0
    for way in product((1.0, -1.0, 0.0), repeat=len(chances)):
        chance = math.prod({1.0: d, -1.0: u, 0.0: 1 - d - u}[one] for one, (d, u) in zip(way, chances, strict=True))
        mean += max(0.0, chance) * seen(metric(margin), way).alone
    drop = math.fsum(down - up for down, up in chances) / len(chances)
    assert drop > margin or mean <= 1 + 1e-9


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=6), st.floats(0, 0.3))
def test_items_that_passed_can_only_fall_and_those_that_failed_only_rise(items, slack):
    """Each changes with a chance of its own; the margin is their mean drop or more."""
    failing = sum(not passed for passed, _ in items) / len(items)
    drop = math.fsum(chance if passed else -chance for passed, chance in items) / len(items)
    margin = min(0.99, max(0.0, drop) + slack)
    mean = 0.0
    for way in product((True, False), repeat=len(items)):
        chance = math.prod(c if changed else 1 - c for changed, (_, c) in zip(way, items, strict=True))
        drops = [(1.0 if passed else -1.0) if changed else 0.0 for changed, (passed, _) in zip(way, items, strict=True)]
        mean += chance * seen(metric(margin, 1.0, failing), drops).sharp
    assert drop > margin or mean <= 1 + 1e-9


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([(1.0, 0.0), (1.0, 1.0), (0.0, 0.0), (0.0, -1.0)]), min_size=2, max_size=7), st.data())
def test_a_random_part_of_frozen_items_of_a_rate(items, data):
    """Of each item what it was at the baseline, and its drop."""
    k = data.draw(st.integers(1, len(items)))
    failing = sum(before == 0.0 for before, _ in items) / len(items)
    margin = max(0.0, math.fsum(drop for _, drop in items) / len(items))
    if margin < 1:
        looks = [
            seen(metric(margin, 1.0, failing), [drop for _, drop in part]).sharp for part in combinations(items, k)
        ]
        assert math.fsum(looks) / len(looks) <= 1 + 1e-9


@settings(max_examples=60, deadline=None)
@given(DROPS, st.data())
def test_a_random_part_of_frozen_items(items, data):
    k = data.draw(st.integers(1, len(items)))
    margin = max(0.0, math.fsum(items) / len(items))
    if margin < 1:
        looks = [seen(metric(margin), part).alone for part in combinations(items, k)]
        assert math.fsum(looks) / len(looks) <= 1 + 1e-9


@settings(max_examples=60, deadline=None)
@given(st.lists(DROPS, min_size=1, max_size=30), st.floats(0, 0.5))
def test_worse_items_never_speak_for_the_model(looks, margin):
    one = worse = metric(margin)
    for look in looks:
        one, worse = seen(one, look), seen(worse, [*look[1:], 1.0] if look[0] < 1 else look)
        assert worse.e_value >= one.e_value * (1 - 1e-9)
        assert not (alarmed(one) and not alarmed(worse))


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 0.3), st.integers(1, 3))
def test_detectors_gain_at_most_one_a_look(margin, looks):
    """Over all ways in which two items, of which each falls with a chance of the margin, can go in so many looks."""
    mean = 0.0
    for way in product((0.0, 1.0), repeat=2 * looks):
        one = metric(margin)
        for at in range(looks):
            one = seen(one, way[2 * at : 2 * at + 2])
        mean += math.prod(margin if fell else 1 - margin for fell in way) * one.e_value
    assert mean <= looks * (1 + 1e-9)
