"""How alike two texts are, by what is kept of them."""

import random
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.core.facts.dreams.scenario import KEPT, Sketch, Turn, cosine, likeness
from apollod.curation.dreaming.scenario_text import GRAM, sketch_of, text_of


def grams(text: str) -> set[str]:
    folded = f" {' '.join(text.casefold().split())} "
    return {folded[at : at + GRAM] for at in range(max(1, len(folded) - GRAM + 1))}


def jaccard(one: str, other: str) -> float:
    first, second = grams(one), grams(other)
    return len(first & second) / len(first | second)


def prose(chance: random.Random, words: int) -> list[str]:
    vowels, others = "aeiou", "bcdfghklmnprstvwz"
    return [
        "".join(chance.choice(others) + chance.choice(vowels) for _ in range(chance.randint(1, 4)))
        for _ in range(words)
    ]


def test_short_texts_are_compared_exactly() -> None:
    texts = [
        "Open the red door.",
        "Open the red gate.",
        "Close the blue box, please.",
        "Hi",
        "",
        "OPEN the\n red door. ",
    ]
    assert all(len(grams(text)) <= KEPT for text in texts)
    for one in texts:
        for other in texts:
            assert likeness(sketch_of(one), sketch_of(other)) == pytest.approx(jaccard(one, other)), (one, other)
    assert likeness(sketch_of(texts[0]), sketch_of(texts[-1])) == 1.0
    assert likeness(sketch_of(texts[0]), sketch_of(texts[1])) < 0.7
    assert likeness(sketch_of(texts[0]), sketch_of(texts[2])) < 0.2


def test_long_texts_are_estimated_as_well_as_it_is_said() -> None:
    chance = random.Random(0)
    for size, bias_max in ((40, 0.01), (500, 0.03)):
        errors = []
        for _ in range(60):
            one = prose(chance, size)
            other = [*one[: (kept := chance.randint(0, size))], *prose(chance, size - kept)]
            first, second = " ".join(one), " ".join(other)
            errors.append(likeness(sketch_of(first), sketch_of(second)) - jaccard(first, second))
        bias = sum(errors) / len(errors)
        deviation = (sum(error**2 for error in errors) / len(errors)) ** 0.5
        assert deviation < 0.07 and abs(bias) < bias_max, (size, bias, deviation)


def test_the_words_are_compared_wherever_they_stand() -> None:
    one = sketch_of("The kettle leaks and my sister wants to sell her old boat tomorrow")
    turned = sketch_of("tomorrow my sister wants to sell the old kettle; her boat leaks, and")
    other = sketch_of("Quarterly figures arrived late because nobody had signed those invoices")
    assert cosine(one, turned) == pytest.approx(1.0, abs=0.02) and likeness(one, turned) < 0.9
    assert abs(cosine(one, other)) < 0.4
    assert cosine(one, one) == pytest.approx(1.0)
    assert cosine(one, sketch_of("...")) == 0.0 and cosine(sketch_of(""), sketch_of("")) == 0.0


def test_texts_without_a_common_word_point_anywhere() -> None:
    chance = random.Random(3)
    cosines = [
        cosine(
            sketch_of(" ".join(prose(chance, 40))),
            sketch_of(" ".join(f"x{n}y" for n in chance.sample(range(9999), 40))),
        )
        for _ in range(300)
    ]
    mean = sum(cosines) / 300
    assert abs(mean) < 0.03 and (sum(one**2 for one in cosines) / 300) ** 0.5 < 0.16


def test_the_cosine_is_that_of_the_vectors() -> None:
    one = Sketch(b"", bytes([3, 4]))
    other = Sketch(b"", bytes([0, 0xFF]))  # int8: 0, -1
    assert cosine(one, other) == pytest.approx(-0.8)


@given(st.text(), st.text())
def test_it_is_a_share_and_the_same_both_ways(one: str, other: str) -> None:
    a, b = sketch_of(one), sketch_of(other)
    assert 0.0 <= likeness(a, b) == likeness(b, a) <= 1.0
    assert -1.0001 <= cosine(a, b) == cosine(b, a) <= 1.0001
    assert likeness(a, sketch_of(f"  {one.swapcase()}\n") if one.swapcase().casefold() == one.casefold() else a) == 1.0


def test_a_sketch_stays_small_and_comes_back() -> None:
    sketch = sketch_of(" ".join(prose(random.Random(1), 5000)))
    encoded = msgspec.json.encode(sketch)
    assert len(encoded) < 300 and msgspec.json.decode(encoded, type=Sketch) == sketch


def test_what_is_said_in_it_is_a_scenario_s_text() -> None:
    assert text_of([Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c")]) == "a\nb\nc"


def test_two_hundred_comparisons_take_no_time() -> None:
    chance = random.Random(2)
    known = [sketch_of(" ".join(prose(chance, 60))) for _ in range(200)]
    new = sketch_of(" ".join(prose(chance, 60)))
    best = 1.0
    for _ in range(5):
        began = time.process_time()
        for one in known:
            likeness(new, one), cosine(new, one)
        best = min(best, time.process_time() - began)
    assert best < 0.008  # of both together; 1 ms on an idle machine
