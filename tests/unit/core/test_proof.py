"""When a lesson counts as known: an error bound over all rounds, and few asks where it is known."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.core.proof import ALPHA, KNOWN, SHOWN, bound, decided, evidence, most, needed

ROUNDS = 50


def round_of(random_: random.Random, shown: Sequence[float], number: int) -> tuple[bool, int]:
    """(known, asks) of one round, where wording n passes with probability `shown[n]`."""
    passed: list[bool] = []
    while (verdict := decided(passed, number, len(shown))) is None:
        passed += [random_.random() < shown[n % len(shown)] for n in range(needed(passed, number, len(shown)))]
    return verdict, len(passed)


def life(random_: random.Random, shown: Sequence[float]) -> bool:
    return any(round_of(random_, shown, number)[0] for number in range(1, ROUNDS + 1))


@pytest.mark.parametrize(
    "shown", [(0.6,) * 4, (0.7,) * 4, (0.7,) * 2, (1.0, 1.0, 0.4, 0.0), (0.99, 0.41), (1.0, 1.0, 0.1)], ids=str
)
def test_what_is_not_shown_often_enough_is_hardly_ever_called_known(shown):
    """60 or 70 of 100 answers, the same for all wordings or not: in at most 5 of 100 lives of 50 rounds."""
    random_ = random.Random(7)
    lives = 600
    known = sum(life(random_, shown) for _ in range(lives))
    assert known <= ALPHA * lives, f"{known} of {lives}"


def test_what_is_shown_99_times_of_100_is_known_within_20_asks():
    """Four greedy ones before these 16. One answer in a hundred that fails costs eight more."""
    random_ = random.Random(7)
    found = [round_of(random_, (0.99,) * 4, 1) for _ in range(1000)]
    assert sorted(asks for _, asks in found)[500] == 16
    assert sum(known and asks <= 16 for known, asks in found) > 820
    assert sum(known for known, _ in found) > 990 and max(asks for _, asks in found) <= 52


def test_what_is_shown_nine_times_of_ten_is_known_in_most_first_rounds():
    random_ = random.Random(7)
    found = [round_of(random_, (0.9,) * 4, 1) for _ in range(1000)]
    assert sum(known for known, _ in found) > 780
    assert sum(asks for _, asks in found) < 35 * len(found)


def test_a_round_asks_52_times_at_most_at_first_and_little_more_later():
    assert (needed([], 1, 4), most(1, 4)) == (16, 52)
    assert (needed([], ROUNDS, 4), most(ROUNDS, 4)) == (44, 80)
    assert sum(ALPHA / (number * (number + 1)) for number in range(1, 100_000)) < ALPHA


@given(st.integers(1, 200), st.integers(1, 8), st.data())
def test_a_round_is_decided_as_soon_as_it_can_be(number, cycle, data):
    passed: list[bool] = []
    while (verdict := decided(passed, number, cycle)) is None:
        more = needed(passed, number, cycle)
        assert more and more % cycle == 0
        assert decided([*passed, *[True] * more], number, cycle), "all of the asks would not do if they passed"
        assert more == cycle or not decided([*passed, *[True] * (more - cycle)], number, cycle), "fewer would do"
        passed += data.draw(st.lists(st.booleans(), min_size=more, max_size=more))
    assert len(passed) <= most(number, cycle) and verdict == (evidence(passed) >= bound(number) - 1e-6)


@given(st.floats(0.0, 0.7), st.integers(1, 8))
def test_the_mean_of_the_process_never_grows_where_the_lesson_is_not_shown(mean, cycle):
    """With the worst split of the mean over a cycle: all the same."""
    assert (mean * KNOWN / SHOWN + (1 - mean) * (1 - KNOWN) / (1 - SHOWN)) ** cycle <= 1.0 + 1e-12


@given(st.integers(1, 200), st.integers(1, 8))
def test_six_answers_may_fail_in_each_round(number, cycle):
    assert decided([*[False] * 6, *[True] * (most(number, cycle) - 6)], number, cycle)
