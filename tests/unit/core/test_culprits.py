"""Which examples of a window made it worse: the verdicts, and the table of the docstring."""

from random import Random

import pytest
from property.test_culprits import play

from apollod.core.quality import culprits
from apollod.core.quality.culprits import Replay, most_replays, next_replay, outcome, search, told
from benchmarks.quality_statistics import bisected

ALL = frozenset(range(128))
WINDOWS = 20


def test_replays_of_a_window_of_128_are_those_of_the_table():
    rows = []
    for number in range(1, 7):
        plants = [set(Random(f"{number} {at}").sample(range(128), number)) for at in range(WINDOWS)]
        took = [bisected(lambda kept, p=p: "bad" if kept & p else "good").replays for p in plants]
        rows.append(f"{number:8} {sum(took) / WINDOWS:6.1f} {max(took):5} {most_replays(128, number):13}")
    pairs = [set(Random(f"pair {at}").sample(range(128), 2)) for at in range(WINDOWS)]
    took = [bisected(lambda kept, p=p: "bad" if p <= kept else "good").replays for p in pairs]
    rows.append(f"{'a pair':>8} {sum(took) / WINDOWS:6.1f} {max(took):5} {most_replays(128, 2):13}")
    assert "\n".join(f"    {row}" for row in rows) in (culprits.__doc__ or ""), "\n".join(rows)


@pytest.mark.parametrize("planted", [0, 1, 63, 64, 126, 127])
def test_one_culprit_of_128_takes_at_most_12_replays(planted):
    said, asked = play(search(128), lambda kept: "bad" if planted in kept else "good")
    assert said.culprits == (planted,) and len(asked) <= 11 < most_replays(128, 1) == 12
    assert ALL - {planted} in asked, "the innocent ones alone pass"
    assert {planted} in asked, "the one that was found alone explains it"


def test_damage_of_no_example_is_called_so():
    assert play(search(128), lambda kept: "bad")[0].kind == "elsewhere"
    assert play(search(128), lambda kept: "good")[0].kind == "not_repeated"


def test_damage_of_the_amount_is_called_so_and_not_searched_for_ever():
    said, asked = play(search(128), lambda kept: "bad" if len(kept) > 100 else "good")
    assert said.kind == "spread" and not said.culprits and len(said.suspects) == 28 and len(asked) <= 40


def test_more_culprits_than_are_looked_for_are_called_so():
    said, _ = play(search(32, culprits=2), lambda kept: "bad" if kept & {3, 9, 20} else "good")
    assert (said.kind, said.culprits) == ("spread", (3, 9)) and 20 in said.suspects and 0 not in said.held


def test_an_outcome_that_is_unclear_is_asked_again_and_then_counts_as_bad():
    state = told(told(search(4), range(4), "good"), (), "bad")
    first = next_replay(state)
    assert first == Replay((2, 3))
    for _ in range(culprits.ASKED_MAX - 1):
        state = told(state, first.left_out, "unclear")
        assert next_replay(state) == first
    assert next_replay(told(state, first.left_out, "unclear")) == Replay((1, 2, 3)), "as if it were bad"
    assert next_replay(told(state, first.left_out, "good")) == Replay((3,))


@pytest.mark.parametrize("doubtful", [{0, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 7}])
def test_whoever_was_found_only_because_a_replay_was_unclear_is_acquitted(doubtful):
    """6 is the culprit, and that some of the others pass stays unclear: those who were found for it are learned at last
    with all the others; unless that is what is unclear."""

    def oracle(kept):
        return "unclear" if kept == doubtful else "bad" if 6 in kept else "good"

    said, asked = play(search(8), oracle)
    others = frozenset(range(8)) - {6}
    assert (said.kind, said.suspects, asked.count(frozenset(doubtful))) == ("named", (), culprits.ASKED_MAX)
    assert said.culprits == ((6, 7) if doubtful == others else (6,))


def test_replays_that_are_all_unclear_end_with_everybody_suspect():
    said, asked = play(search(16), lambda kept: "good" if not kept else "bad" if len(kept) == 16 else "unclear")
    assert said.held == tuple(range(16)) and len(asked) - len(set(asked)) == culprits.REPEATS * 8


def test_a_search_ends_where_it_was_said_to_end():
    """For one culprit, and there are two that do harm only together."""
    said, asked = play(search(16, culprits=1), lambda kept: "bad" if {3, 12} <= kept else "good")
    assert (said.kind, len(asked)) == ("unfinished", most_replays(16, 1)) and 12 in said.held


def test_a_replay_is_judged_by_its_part_of_the_damage():
    assert [outcome(damage, 2.0, noise=0.05) for damage in (0.1, 0.15, 0.2, 0.24, 0.26)] == [
        "good", "good", "unclear", "unclear", "bad"
    ]  # fmt: skip


@pytest.mark.parametrize(("window", "most"), [(0, 1), (1, 0)])
def test_a_search_for_nothing_is_refused(window, most):
    with pytest.raises(ValueError, match="at least one of each"):
        search(window, most)
