"""Rates, limits and layers as functions."""

import math
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.core import schedules
from apollod.core.schedules import SPIKE_AFTER, learning_rate, loss_limit, risen
from apollod.model.decoder import format_layers, parse_layers

WINDOW = st.integers(1, 300)


def test_warm_up() -> None:
    assert [learning_rate(1.0, i, 20, 0.1) for i in range(4)] == [0.5, 1.0, 1.0, 1.0]
    assert learning_rate(1.0, 0, 1, 0.1) == 1.0
    assert learning_rate(1.0, 0, 100, 0.0) == 1.0


def test_cosine_by_hand() -> None:
    rates = [learning_rate(2.0, i, 10, 0.2, "cosine", 0.1) for i in range(12)]
    assert rates[:3] == [1.0, 2.0, 2.0]  # warm-up over 2 of 10, then from the peak
    assert rates[6] == pytest.approx(2.0 * 0.55)  # half way down: the middle between 1 and the floor
    assert rates[9] == pytest.approx(2.0 * (0.1 + 0.9 * (1 + math.cos(math.pi * 7 / 8)) / 2))
    assert rates[10:] == pytest.approx([0.2, 0.2])


@given(WINDOW, st.floats(0, 1), st.floats(0, 1))
def test_a_window_rises_once_and_falls_once_between_floor_and_peak(planned: int, warmup: float, floor: float) -> None:
    rates = [learning_rate(1.0, i, planned, warmup, "cosine", floor) for i in range(planned + 3)]
    top = rates.index(max(rates))
    assert max(rates) == 1.0 and rates[:top] == sorted(rates[:top]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert all(floor - 1e-12 <= rate <= 1.0 for rate in rates[top:])
    assert rates[planned] == pytest.approx(floor) or warmup == 1.0 or math.ceil(warmup * planned) == planned


@given(WINDOW, st.floats(0, 1), st.integers(0, 400))
def test_a_floor_of_one_is_the_constant_schedule(planned: int, warmup: float, position: int) -> None:
    constant = learning_rate(3e-5, position, planned, warmup)
    assert learning_rate(3e-5, position, planned, warmup, "cosine", 1.0) == pytest.approx(constant)


def test_a_loss_limit_is_the_lower_one_and_a_spike_needs_losses_to_compare_with() -> None:
    losses = [2.0, 4.0, 2.0, 4.0, 3.0]
    assert len(losses) == SPIKE_AFTER
    assert loss_limit(0.0, 0.0, 100, 300.0) == 0.0
    assert loss_limit(8.0, 0.0, 0, 0.0) == 8.0
    assert loss_limit(0.0, 2.0, SPIKE_AFTER - 1, sum(losses[:-1])) == 0.0
    assert loss_limit(0.0, 2.0, SPIKE_AFTER, sum(losses)) == 2.0 * mean(losses)
    assert loss_limit(5.0, 2.0, SPIKE_AFTER, sum(losses)) == 5.0
    assert loss_limit(7.0, 2.0, SPIKE_AFTER, sum(losses)) == 6.0


def test_layers_are_indices_and_ranges() -> None:
    assert parse_layers("") == frozenset()
    assert parse_layers("0-3, 20-22,7") == {0, 1, 2, 3, 7, 20, 21, 22}
    assert format_layers(parse_layers("22,0-3,20-21,7")) == "0-3,7,20-22"


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1,,2", "3-1", "1-2-3", "0x1", "1;2", "1.5"])
def test_what_names_no_layers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="layers = "):
        parse_layers(text)


@given(st.frozensets(st.integers(0, 200)))
def test_layers_survive_their_text(layers: frozenset[int]) -> None:
    assert parse_layers(format_layers(layers)) == layers


@pytest.mark.parametrize("times", [10, 1025, 10**9])
def test_a_wait_stays_at_its_longest_however_often_it_was(times: int) -> None:
    """A fold counts failures for as long as they go on."""
    assert schedules.backoff_s(times) == schedules.BACKOFF_MAX_S
    assert schedules.refused_s(times) == schedules.REFUSED_MAX_S


def test_the_rate_rises_over_the_first_updates() -> None:
    assert [risen(updates, 4) for updates in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert risen(0, 0) == risen(0, 1) == 1.0
