"""What the answers of the baseline have lost, from log-probabilities alone."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.curation.probes.references import LOSS_MAX, Reference, known_items, quality_drops, watched_items
from apollod.errors import RecordRefused
from apollod.wire.teacher import Teacher


def reference(*places: dict[int, float], answer: tuple[int, ...] = ()) -> Reference:
    """Places of the likeliest tokens; the answer is the likeliest ones, or what is said."""
    ids = [token for place in places for token in place]
    logprobs = [value for place in places for value in place.values()]
    own = answer or tuple(max(place, key=lambda token: place[token]) for place in places)
    return Reference((1,), Teacher(array("I", own), array("I", ids), array("f", logprobs), len(places[0])))


BOTH = (True, False)
SURE = reference({5: math.log(0.9), 6: math.log(0.1)}, {7: math.log(0.4), 8: math.log(0.3)})


def test_then_the_answer_had_the_geometric_mean_of_its_tokens() -> None:
    assert SURE.chance(True) == pytest.approx(math.sqrt(0.9 * 0.4))


def test_a_token_that_was_none_of_the_likeliest_counts_as_the_last_of_them() -> None:
    assert reference({5: math.log(0.6), 6: math.log(0.2)}, answer=(9,)).chance(False) == pytest.approx(0.2)


def test_of_a_loss_its_value_and_else_what_was_lost_items_without_a_reference_left_out() -> None:
    items = {"facts.passed": ("a", "b", "none"), "texts.loss": ("a", "b"), "repetition": ("b",)}
    references = {"a": SURE, "b": SURE}
    assert known_items(references, items) == (("a", True), ("b", True), ("a", False), ("b", False))
    now = {("a", True): -0.5, ("b", True): -1.5, ("a", False): -0.5, ("b", False): -1.5}
    found = quality_drops(references, items, now)
    then = math.sqrt(0.36)
    assert found["texts.loss"] == pytest.approx(1.0)
    assert found["facts.passed"] == pytest.approx(then - (math.exp(-0.5) + math.exp(-1.5)) / 2)
    assert found["repetition"] == pytest.approx(then - math.exp(-1.5))


def test_a_metric_without_any_reference_is_refused() -> None:
    with pytest.raises(RecordRefused, match=r"none of the 1 items of b\.passed"):
        known_items({"a": SURE}, {"a.passed": ("a",), "b.passed": ("b",)})


@pytest.mark.parametrize("broken", [math.nan, -math.inf, -1e9])
def test_weights_that_give_no_number_have_lost_everything(broken: float) -> None:
    found = quality_drops({"a": SURE}, {"a.passed": ("a",), "a.loss": ("a",)}, {("a", one): broken for one in BOTH})
    assert found == {"a.passed": pytest.approx(SURE.chance(False)), "a.loss": LOSS_MAX}


def test_of_a_rate_only_the_tokens_that_decide_count() -> None:
    decided = SURE._replace(decides=(1, 2))
    assert decided.scored(True) == ((1, 5, 7), 2) and decided.scored(False) == SURE.scored(True) == ((1, 5, 7), 1)
    assert decided.chance(True) == pytest.approx(0.4) and decided.chance(False) == SURE.chance(True)
    items = {"facts.passed": ("a",), "repetition": ("a",)}
    now = {("a", True): math.log(0.1), ("a", False): math.log(0.6)}
    found = quality_drops({"a": decided}, items, now)
    assert found == {"facts.passed": pytest.approx(0.3), "repetition": pytest.approx(0.0, abs=1e-6)}
    beside = watched_items({"a": decided}, items, {"facts.passed": 2.0, "repetition": 1.0})
    assert beside == {(("a", True), True): 2.0, (("a", False), True): 1.0}


@given(st.lists(st.floats(-50.0, 0.001), min_size=1, max_size=8), st.integers(0, 7), st.floats(0.0, 20.0))
def test_what_is_less_likely_has_lost_more(now: list[float], place: int, less: float) -> None:
    items = {f"i{number}": value for number, value in enumerate(now)}
    references = dict.fromkeys(items, SURE)
    asked = {"x.passed": tuple(items), "x.loss": tuple(items)}
    lower = items | {f"i{place % len(now)}": now[place % len(now)] - less}
    before, after = (
        quality_drops(references, asked, {(id_, one): value for id_, value in found.items() for one in BOTH})
        for found in (items, lower)
    )
    assert all(after[name] >= before[name] for name in asked)
    assert -1.0 <= before["x.passed"] <= 1.0 and before["x.loss"] >= 0.0
