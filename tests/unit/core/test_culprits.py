"""Which examples of a window made it worse: the verdicts, and the table of the docstring."""

from random import Random

import pytest
from property.test_culprits import play

from apollod.core.facts.quality import culprits
from apollod.core.facts.quality.culprits import (
    LOWER,
    OF_RATE,
    SHARE,
    Replay,
    Verdict,
    given_up,
    longest,
    next_replay,
    search,
    told,
)
from apollod.core.facts.quality.state import Asked, scored_after, search_of
from benchmarks.quality_statistics import _among, bisected

ALL = frozenset(range(128))
WINDOWS = 20


def test_replays_of_a_window_of_128_are_those_of_the_table():
    rows = []
    for number in (1, 2, 3, 4, 6, 8):
        plants = [set(Random(f"{number} {at}").sample(range(128), number)) for at in range(WINDOWS)]
        parts = [bisected(lambda kept, p=p: len(kept & p) / len(p)).replays for p in plants]
        whole = [bisected(lambda kept, p=p: float(bool(kept & p))).replays for p in plants]
        means = [sum(took) / WINDOWS for took in (parts, whole)]
        rows.append(f"{number:8} {means[0]:13.1f} {max(parts):5} {means[1]:11.1f} {max(whole):5}")
    assert "\n".join(f"    {row}" for row in rows) in (culprits.__doc__ or ""), "\n".join(rows)


@pytest.mark.parametrize("planted", [{3}, {3, 40}])
def test_a_culprit_that_shows_only_with_what_comes_after_it_is_found_all_the_same(planted):
    """As with an optimizer whose moments outlast a step: harm begins ten steps later."""

    def oracle(kept):
        return any(sum(1 for one in kept if one > bad) >= 10 for bad in planted & kept)

    said, _ = play(search(64), oracle)
    assert (said.kind, said.culprits, said.suspects) == ("named", tuple(sorted(planted)), ())


def test_damage_of_no_example_is_called_so():
    assert play(search(128), lambda kept: True)[0].kind == "elsewhere"
    assert play(search(128), lambda kept: False)[0].kind == "not_repeated"


def test_damage_of_the_amount_is_called_so_and_not_searched_for_ever():
    said, asked = play(search(128), lambda kept: len(kept) > 100)
    assert said.kind == "spread" and 28 <= len(said.held) < 64 and len(asked) <= longest(128, 8)


def test_more_culprits_than_are_looked_for_are_called_so():
    said, _ = play(search(32, culprits=2), lambda kept: bool(kept & {3, 9, 20}))
    assert said.kind == "spread" and set(said.culprits) < {3, 9, 20} < set(said.held) and 31 not in said.held


@pytest.mark.parametrize(("few", "most"), [(3, 2 + 2 + 9 + 1), (14, 2 + 2 + 9 + 1), (100, 60)])
def test_harm_that_every_part_of_the_window_does_is_of_the_rate(few, most):
    """Found before one is named, where a ninth of the window does it."""
    said, asked = play(search(128), lambda kept: len(kept) >= few, harmless_at=1 / 4)
    assert said == Verdict("rate", replays=said.replays, lr_scale=1 / 4) and len(asked) < said.replays <= most
    for lower in LOWER:
        assert play(search(128), lambda kept: len(kept) >= few, harmless_at=lower)[0].lr_scale == lower
    assert play(search(128), lambda kept: len(kept) >= few)[0].kind == "spread"


@pytest.mark.parametrize(("power", "kind"), [(1, "spread"), (2, "rate")])
def test_only_harm_that_falls_faster_than_the_rate_is_of_the_rate(power, kind):
    """Harm that all examples do a little of."""
    state = search(128)
    while isinstance(said := next_replay(state), Replay):
        state = told(state, said.left_out, 10 * (128 - len(said.left_out)) / 128 * said.lr_scale**power, said.lr_scale)
    assert said.kind == kind and not said.culprits and min(LOWER) * OF_RATE < SHARE


@pytest.mark.parametrize(("half_at", "kind"), [(1e-2, "rate"), (1e-1, "spread")])
def test_harm_at_a_much_too_high_rate_is_of_the_rate_only_where_it_falls_faster_than_the_rate(half_at, kind):
    """18 examples, of which all harm. Of `rate` harm grows with the square of the rate, up to a bound."""
    power, window = 2 if kind == "rate" else 1, tuple(f"x{n}" for n in range(18))
    replays = []

    def drop(kept, lr):
        dose = (kept * (lr / half_at) ** power) / 2
        return dose / (1.0 + dose)

    while isinstance(said := next_replay(search_of(window, 8, replays, {"a.passed": 0.05})), Replay):
        left_out = tuple(window[place] for place in said.left_out)
        replays.append(Asked(left_out, {"a.passed": drop(18 - len(left_out), 2e-2 * said.lr_scale)}, said.lr_scale))
    assert said.kind == kind and (kind == "spread" or said.lr_scale == 1 / 64), said


def test_of_a_real_model_40_good_examples_that_harm_alike_none_is_named():
    """Damage by the number of examples kept, as replays of SmolLM2-135M measured it (docs/benchmarks): a ninth of the
    window does less than the share by which a replay is bad, and more than a part may do."""
    of = {0: 0.0, 1: 0.01, 2: 0.019, 3: 0.09, 4: 0.056, 5: 0.18, 10: 0.27, 20: 0.43, 39: 0.39, 40: 0.376}
    window, replays = tuple(f"x{n}" for n in range(40)), []
    while isinstance(said := next_replay(search_of(window, 8, replays, {"a.passed": 0.05})), Replay):
        kept = 40 - len(said.left_out)
        drop = of[max(one for one in of if one <= kept)] * (said.lr_scale**2)
        replays.append(Asked(tuple(window[place] for place in said.left_out), {"a.passed": drop}, said.lr_scale))
    assert (said.kind, said.lr_scale) == ("rate", 1 / 4) and len(replays) <= 2 + 2 + 9 + 1


def test_few_culprits_are_named_whatever_a_lower_rate_would_do():
    said, asked = play(search(128), lambda kept: bool(kept & {20, 90}), harmless_at=1 / 4)
    assert (said.kind, said.culprits, len(asked)) == ("named", (20, 90), said.replays), "no rate was asked about"
    assert play(search(8), lambda kept: bool(kept), harmless_at=1 / 4)[0].culprits == tuple(range(8))


def test_a_search_that_was_open_when_other_replays_were_asked_goes_on():
    """It asks for what it lacks."""
    state = search(32)
    for left_out, drop in ((range(32), 0.0), ((), 4.0), (range(31), 0.0), (range(8), 4.0)):
        state = told(state, left_out, drop)
    assert next_replay(state) == Replay(tuple(range(16)))


def test_a_search_that_is_given_up_keeps_what_was_good_together():
    state = told(told(search(8), range(8), 0.0), (), 4.0)
    assert given_up(search(8)).suspects == given_up(state).suspects == tuple(range(8))
    asked = next_replay(state)
    said = given_up(told(state, asked.left_out, 4.0 * SHARE))
    assert (said.kind, said.suspects, said.replays) == ("unfinished", (0, 1, 2, 3), 3)


def test_of_a_few_that_harm_a_little_besides_the_poison_none_is_named():
    """Two poisonous lines, and 40 good ones that together do a third of the damage."""

    def damage(kept):
        return (len(kept & {30, 99}) + sum(one < 40 for one in kept) / 40) / 3

    said, _ = play(search(128), damage)
    assert (said.kind, said.culprits) == ("named", (30, 99))


@pytest.mark.parametrize(("window", "most"), [(0, 1), (1, 0)])
def test_a_search_for_nothing_is_refused(window, most):
    with pytest.raises(ValueError, match="at least one of each"):
        search(window, most)


@pytest.mark.parametrize(
    ("steps", "after"),
    [(0, (0,)), (1, (1,)), (7, (7,)), (8, (8, 7)), (40, (40, 39, 38, 37, 35, 34, 33, 32)),
     (128, (128, 124, 120, 116, 112, 108, 104, 100))],
)  # fmt: skip
def test_a_replay_is_scored_at_its_end_and_at_most_seven_times_before_it_in_the_last_quarter(steps, after):
    assert scored_after(steps) == after


def test_what_replays_vary_by_names_hardly_anybody():
    """Of 40 windows with 3 culprits each, whose replays vary by a tenth of the damage: 15 innocents were named besides
    62 culprits while parts below 0 were not asked how far parts vary."""
    innocent = guilty = 0
    for at in range(40):
        found, planted, _ = _among(Random(f"among 0.1 {at}"), 0.1)
        named = set(found.culprits) if found.kind == "named" else set()
        innocent, guilty = innocent + len(named - planted), guilty + len(named & planted)
    assert innocent <= 2 and guilty >= 30, (innocent, guilty)
