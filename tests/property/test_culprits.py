"""Which examples of a window made it worse: whatever the culprits, they are found in as many replays as was said."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from apollod.core.quality.culprits import (
    SHARE,
    TOGETHER,
    Replay,
    Search,
    most_replays,
    next_replay,
    outcome,
    search,
    told,
)

WINDOWS = st.integers(1, 130)


def play(state, oracle):
    """To the verdict, through what a journal keeps."""
    asked = []
    while isinstance(said := next_replay(state), Replay):
        kept = frozenset(range(state.window)).difference(said.left_out)
        state = told(state, said.left_out, oracle(kept))
        state = msgspec.json.decode(msgspec.json.encode(state), type=Search)
        asked.append(kept)
        assert len(asked) <= most_replays(state.window, state.culprits)
    assert said.replays == len(asked)
    return said, asked


@settings(max_examples=60, deadline=None)
@given(WINDOWS, st.data())
def test_single_culprits_are_named_and_nobody_else(window, data):
    planted = data.draw(st.sets(st.integers(0, window - 1), min_size=1, max_size=8))
    said, asked = play(search(window), lambda kept: "bad" if kept & planted else "good")
    assert said.kind == "named" and set(said.culprits) == planted and not said.together and not said.suspects
    assert len(asked) <= most_replays(window, len(planted)) - len(planted)
    assert len(set(asked)) == len(asked), "the same was asked twice"
    innocent = frozenset(range(window)) - planted
    assert innocent in asked and (frozenset(planted) in asked or any(one <= planted for one in asked if one))


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 130), st.data())
def test_those_that_do_harm_only_together_are_named_together(window, data):
    planted = data.draw(st.sets(st.integers(0, window - 1), min_size=2, max_size=TOGETHER))
    said, asked = play(search(window), lambda kept: "bad" if planted <= kept else "good")
    assert said.kind == "named" and set(said.culprits) == set(said.together) == planted
    assert len(asked) <= most_replays(window, len(planted)) - len(planted)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 130), st.data())
def test_whoever_is_not_held_was_good_together(window, data):
    """Any sets of at most three that do harm together, and an oracle that is unclear as it likes."""
    sets = data.draw(st.lists(st.frozensets(st.integers(0, window - 1), min_size=1, max_size=3), max_size=4))
    seed = data.draw(st.randoms(use_true_random=False))
    good = set()

    def oracle(kept):
        if seed.random() < 0.1:
            return "unclear"
        if any(one <= kept for one in sets):
            return "bad"
        good.add(kept)
        return "good"

    said, _ = play(search(window), oracle)
    if said.kind in ("named", "spread", "unfinished") and good:
        innocent = frozenset(range(window)).difference(said.held)
        assert innocent in good or any(innocent <= one for one in good)
        assert not any(one <= innocent for one in sets)
    assert set(said.together) <= set(said.culprits) and not set(said.culprits) & set(said.suspects)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(0, 63), st.floats(0.01, 10), min_size=1, max_size=6))
def test_what_stays_in_did_a_small_part_of_the_damage(parts):
    def damage(kept):
        return sum(parts[one] for one in sorted(parts) if one in kept)

    whole = damage(range(64))
    said, _ = play(search(64), lambda kept: outcome(damage(kept), whole))
    assert said.kind == "named" and set(said.culprits) <= set(parts)
    assert damage(set(range(64)).difference(said.held)) <= SHARE * whole * (1 + 1e-9)
