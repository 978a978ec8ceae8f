"""Which examples of a window made it worse: whatever the culprits, they are found in as many replays as was said."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.effort import draws

from apollod.core.facts.quality.culprits import (
    LOWER,
    OWN,
    SHARE,
    STAYS,
    Replay,
    Search,
    longest,
    next_replay,
    search,
    told,
)

WINDOWS = st.integers(1, 130)


def play(state, damage, harmless_at=0.0):
    """To the verdict, through what a journal keeps. `damage` of a replay that keeps these, as a share of ten margins.
    At this share of the learning rate and below nothing does harm."""
    asked = []
    while isinstance(said := next_replay(state), Replay):
        kept = frozenset(range(state.window)).difference(said.left_out)
        state = told(state, said.left_out, 10.0 * damage(kept) * (said.lr_scale > harmless_at), said.lr_scale)
        state = msgspec.json.decode(msgspec.json.encode(state), type=Search)
        asked.append((kept, said.lr_scale))
        assert len(asked) <= longest(state.window, state.culprits)
    assert said.replays == len(asked)
    assert len(set(asked)) == len(asked), "the same was asked twice"
    return said, [kept for kept, lr_scale in asked if lr_scale == 1.0]


@draws(30, 60)
@given(WINDOWS, st.booleans(), st.data())
def test_single_culprits_are_named_and_nobody_else(window, each_all, data):
    """Whether each does a part of the damage or all of it."""
    planted = data.draw(st.sets(st.integers(0, window - 1), min_size=1, max_size=8))
    said, asked = play(
        search(window), lambda kept: bool(kept & planted) if each_all else len(kept & planted) / len(planted)
    )
    assert said.kind == "named" and set(said.culprits) == planted and not said.suspects
    innocent = frozenset(range(window)) - planted
    assert innocent in asked or not innocent


@draws(30, 60)
@given(st.integers(4, 130), st.data())
def test_of_two_that_do_harm_only_together_one_is_named(window, data):
    planted = data.draw(st.sets(st.integers(0, window - 1), min_size=2, max_size=2))
    said, _ = play(search(window), lambda kept: planted <= kept)
    assert said.kind == "named" and len(said.culprits) == 1 and set(said.culprits) <= planted


@draws(40, 100)
@given(st.integers(1, 130), st.data())
def test_whoever_is_not_held_was_good_together(window, data):
    """Any sets of at most three that do harm together, and an oracle that is wrong now and then."""
    sets = data.draw(st.lists(st.frozensets(st.integers(0, window - 1), min_size=1, max_size=3), max_size=4))
    seed = data.draw(st.randoms(use_true_random=False))
    wrong = data.draw(st.sampled_from([0.0, 0.1]))
    good = set()

    def oracle(kept):
        bad = any(one <= kept for one in sets) != (seed.random() < wrong)
        if not bad:
            good.add(kept)
        return bad

    said, _ = play(search(window), oracle)
    if said.kind in ("named", "spread"):
        innocent = frozenset(range(window)).difference(said.held)
        assert any(innocent <= one for one in good)
        assert wrong or not any(one <= innocent for one in sets)
    assert not set(said.culprits) & set(said.suspects)


@draws(30, 60)
@given(WINDOWS, st.integers(1, 40), st.sampled_from([0.0, *LOWER]))
def test_harm_that_any_few_examples_do_is_of_the_rate_if_a_lower_one_does_none(window, few, harmless_at):
    """And of the examples, if few enough end it when left out, and half of the others do it with them."""
    said, _ = play(search(window), lambda kept: len(kept) >= few, harmless_at)
    if few > window:
        assert said.kind == "not_repeated"
    elif (few - 1) // 2 <= window - few < 8:  # enough of either half of the others
        assert said.kind == "named" and len(said.culprits) == window - few + 1
    else:
        assert (said.kind, said.lr_scale) == (("rate", harmless_at) if harmless_at else ("spread", 1.0))
        assert bool(said.held) != bool(harmless_at)


@draws(30, 60)
@given(
    st.dictionaries(st.integers(0, 63), st.floats(0.01, 10), min_size=1, max_size=20),
    st.sampled_from([2, 8]),
    st.sampled_from([0.0, *LOWER]),
)
def test_who_has_a_part_of_his_own_is_named_and_nobody_else(parts, culprits, harmless_at):
    """However much others do besides, each a little. These are learned again as slowly as they did no harm."""

    def damage(kept):
        return sum(parts[one] for one in sorted(parts) if one in kept) / whole

    whole = sum(parts.values())
    guilty = {one for one, part in parts.items() if part / whole >= OWN * (1 + 1e-9)}
    said, _ = play(search(64, culprits), damage, harmless_at)
    left = damage(set(range(64)).difference(said.culprits))
    if said.kind == "named":
        assert set(said.culprits) <= {one for one, part in parts.items() if part / whole >= OWN * (1 - 1e-9)}
        assert left <= STAYS + 1e-9 and (guilty <= set(said.culprits) or left <= SHARE + 1e-9 or len(guilty) > culprits)
        if left <= SHARE:
            assert (said.lr_scale, said.suspects) == (1.0, ())
        elif harmless_at:
            assert (said.lr_scale, said.suspects) == (harmless_at, ()), "the others are learned again, so much slower"
        else:
            assert said.suspects and damage(set(range(64)).difference(said.held)) <= SHARE
    else:
        assert said.kind == ("rate" if harmless_at else "spread")
        assert damage(guilty) < 1 - STAYS + 1e-9 or len(guilty) > culprits


@draws(20, 40)
@given(st.integers(30, 130), st.data())
def test_harm_of_the_first_steps_of_a_life_names_nobody(window, data):
    """Any few lines by themselves do half the harm of the poison, and later ones repair it, as measured on a real model
    (docs/benchmarks/2026-11-28-poison-real.md)."""
    planted = data.draw(st.sets(st.integers(0, window - 1), min_size=1, max_size=4))

    def damage(kept):
        return len(kept & planted) / len(planted) + 0.5 * (0 < len(kept) < window // 4)

    said, _ = play(search(window), damage)
    assert said.kind == "named" and set(said.culprits) == planted


def test_a_chance_of_the_path_is_no_culprit():
    """As a good line of a real model: the whole window does damage, either half of it none."""
    said, _ = play(search(30), lambda kept: len(kept) == 30, harmless_at=1 / 4)
    assert (said.kind, said.lr_scale) == ("rate", 1 / 4)
