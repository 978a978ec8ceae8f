"""Which examples of a window made it worse: the verdicts, and the table of the docstring."""

from random import Random

import msgspec
import pytest
from property.test_culprits import play

from apollod.core.facts.quality import culprits
from apollod.core.facts.quality.culprits import (
    LOWER,
    SHARE,
    Replay,
    Search,
    Verdict,
    given_up,
    is_bad,
    most_replays,
    next_replay,
    search,
    told,
)
from apollod.core.facts.quality.damage import search_of
from apollod.core.facts.quality.state import Asked
from benchmarks.quality_statistics import bisected

ALL = frozenset(range(128))
WINDOWS = 20


def test_replays_of_a_window_of_128_are_those_of_the_table():
    rows = []
    for number in range(1, 7):
        plants = [set(Random(f"{number} {at}").sample(range(128), number)) for at in range(WINDOWS)]
        took = [bisected(lambda kept, p=p: bool(kept & p)).replays for p in plants]
        rows.append(f"{number:8} {sum(took) / WINDOWS:6.1f} {max(took):5} {most_replays(128, number):13}")
    assert "\n".join(f"    {row}" for row in rows) in (culprits.__doc__ or ""), "\n".join(rows)


@pytest.mark.parametrize("planted", [0, 1, 63, 64, 126, 127])
def test_one_culprit_of_128_takes_at_most_12_replays(planted):
    said, asked = play(search(128), lambda kept: planted in kept)
    assert said.culprits == (planted,) and len(asked) <= most_replays(128, 1) <= 12
    assert ALL - {planted} in asked, "the innocent ones alone pass"


@pytest.mark.parametrize("planted", [{3}, {3, 40}])
def test_a_culprit_that_shows_only_with_what_comes_after_it_is_found_all_the_same(planted):
    """As with an optimizer whose moments outlast a step: harm begins ten steps later."""

    def oracle(kept):
        return any(sum(1 for one in kept if one > bad) >= 10 for bad in planted & kept)

    replays = 2 + len(planted) * 7 + (len(planted) > 1)  # a part, of two
    assert play(search(64), oracle)[0] == Verdict("named", tuple(sorted(planted)), (), replays)


def test_damage_of_no_example_is_called_so():
    assert play(search(128), lambda kept: True)[0].kind == "elsewhere"
    assert play(search(128), lambda kept: False)[0].kind == "not_repeated"


def test_damage_of_the_amount_is_called_so_and_not_searched_for_ever():
    said, asked = play(search(128), lambda kept: len(kept) > 100)
    assert said.kind == "spread" and len(said.held) == 28 and len(asked) < most_replays(128, 8)


def test_more_culprits_than_are_looked_for_are_called_so():
    said, _ = play(search(32, culprits=2), lambda kept: bool(kept & {3, 9, 20}))
    assert (said.kind, said.culprits) == ("spread", (9, 20)) and 3 in said.suspects and 31 not in said.held


@pytest.mark.parametrize(("few", "most"), [(3, 2 + 7 + 1 + 9 + 1), (14, 2 + 7 + 1 + 9 + 1), (100, 66)])
def test_harm_that_every_part_of_the_window_does_is_of_the_rate(few, most):
    """Found before eight are named, where a ninth of the window does it."""
    said, asked = play(search(128), lambda kept: len(kept) >= few, harmless_at=1 / 4)
    assert said == Verdict("rate", replays=len(asked), lr_scale=1 / 4) and len(asked) <= most
    for lower in LOWER:
        assert play(search(128), lambda kept: len(kept) >= few, harmless_at=lower)[0].lr_scale == lower
    assert play(search(128), lambda kept: len(kept) >= few)[0].kind == "spread"


def test_harm_in_proportion_to_the_rate_is_none_of_the_rate():
    assert min(LOWER) == 1 / 256 and all(is_bad(2.0 * lower, 2.0, lower) for lower in LOWER)
    assert not any(is_bad(2.0 * lower * lower, 2.0, lower) for lower in LOWER if lower < 1 / 4), "nor faster than it"
    assert all(is_bad(2.0 * SHARE * 1.01, 2.0, lower) for lower in (1.0, *LOWER)), "and little of it is left at any"


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
    assert (said.kind, said.lr_scale) == ("rate", 1 / 4) and len(replays) <= 2 + 6 + 1 + 9 + 1


def test_few_culprits_are_named_whatever_a_lower_rate_would_do():
    said, asked = play(search(128), lambda kept: bool(kept & {20, 90}), harmless_at=1 / 4)
    assert (said.kind, said.culprits, len(asked)) == ("named", (20, 90), said.replays)
    assert play(search(8), lambda kept: bool(kept), harmless_at=1 / 4)[0].culprits == tuple(range(8))


def test_a_search_of_before_the_rate_was_asked_about_goes_on():
    """Its replays are known as those at the full rate."""
    state = search(32, culprits=2)
    for left_out, bad in ((range(32), False), ((), True)):
        state = told(state, left_out, bad)
    old = msgspec.json.encode(state).replace(b',"lr_scale":1.0', b"")
    assert b"lr_scale" not in old and msgspec.json.decode(old, type=Search) == state
    assert next_replay(msgspec.json.decode(old, type=Search)) == next_replay(state) == Replay(tuple(range(16)))


def test_a_search_that_is_given_up_keeps_what_was_good_together():
    state = told(told(search(8), range(8), False), (), True)
    assert given_up(state).suspects == tuple(range(8))
    asked = next_replay(state)
    state = told(state, asked.left_out, False)
    said = given_up(state)
    assert (said.kind, said.suspects, said.replays) == ("unfinished", (0, 1, 2, 3), 3)


def test_a_replay_is_judged_by_its_part_of_the_damage():
    assert [is_bad(damage, 2.0) for damage in (-0.1, 0.3, 0.31, 2.0)] == [False, False, True, True]


@pytest.mark.parametrize(("window", "most"), [(0, 1), (1, 0)])
def test_a_search_for_nothing_is_refused(window, most):
    with pytest.raises(ValueError, match="at least one of each"):
        search(window, most)
