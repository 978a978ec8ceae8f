"""An imagined scenario, the use of a seed, how alike texts are by their sketches, and dreams that lose variety."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations, starmap
from math import sqrt
from operator import mul
from statistics import fmean
from struct import unpack

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """A message of a scenario. `role`: user or assistant."""

    role: str
    content: str


class Surfaced(msgspec.Struct, frozen=True):
    """Use of a seed. `times`: number of dreams imagined from it; `learned`: number of these that were learned;
    `taught`: sum of their losses before, nats a token: the distance of the untold model from these answers."""

    times: int = 0
    learned: int = 0
    taught: float = 0.0


class Sketch(msgspec.Struct, frozen=True):
    """A short description of a text for comparisons: under 300 bytes as JSON, however long the text. Made by
    `curation.dreaming.scenario_text`, compared by `likeness`."""

    grams: bytes
    """the smallest hashes of its character n-grams, ascending, at most `KEPT`: uint16, little-endian"""
    vector: bytes
    """its words, each hashed to a place and a sign: `DIMENSIONS` int8"""


# Estimates the similarity of two texts from their sketches, in 1 to 3 µs a comparison.
#
# `likeness` looks at the order of characters: a threshold sketch of n-grams (Beyer et al., "On synopses for
# distinct-value estimation", SIGMOD 2007). All hashes of a text up to the largest that it keeps are known; up
# to the smaller of two such thresholds both sets are complete, and a uniform sample. A text of at most `KEPT` n-grams
# is kept whole, so that texts of three words are compared exactly. `cosine` looks at the words only, regardless of
# order (feature hashing: Weinberger et al., ICML 2009): it finds texts about the same thing in other sentences.

KEPT = 64
"""most hashes of a sketch"""
DIMENSIONS = 64
HASH_MAX = 0xFFFF
_CACHED = 4096  # decoded sketches kept in memory: more than those of one pattern


def likeness(a: Sketch, b: Sketch) -> float:
    """Estimated share of character n-grams that two texts have in common (Jaccard), 0 to 1. 1.0 for texts that differ
    only in case and white space; exact up to `KEPT` n-grams, beyond that its standard error is 0.06 at 0.5 and 0.05 at
    0.8; two long texts have up to 0.03 in common by chance."""
    first, first_set, first_top = _hashes(a.grams)
    second, second_set, second_top = _hashes(b.grams)
    top = min(first_top, second_top)
    common = len(first_set & second_set)  # both are at most `top`
    either = bisect_right(first, top) + bisect_right(second, top) - common
    return common / either if either else 1.0


def cosine(a: Sketch, b: Sketch) -> float:
    """Cosine of the angle between the words of two texts, -1 to 1: 1.0 for the same words in the same proportions,
    about 0 with a standard deviation of 0.13 for texts without a common one. 0 if a text has no word."""
    first, first_norm = _numbers(a.vector)
    second, second_norm = _numbers(b.vector)
    product = sum(starmap(mul, zip(first, second, strict=True)))
    return product / (first_norm * second_norm) if product else 0.0


@lru_cache(_CACHED)
def _hashes(grams: bytes) -> tuple[tuple[int, ...], frozenset[int], int]:
    """Hashes of a sketch, as tuple and set, and the bound up to which none is missing."""
    hashes: tuple[int, ...] = unpack(f"<{len(grams) // 2}H", grams)
    return hashes, frozenset(hashes), hashes[-1] if len(hashes) == KEPT else HASH_MAX


@lru_cache(_CACHED)
def _numbers(vector: bytes) -> tuple[tuple[int, ...], float]:
    """The vector, and its norm."""
    numbers: tuple[int, ...] = unpack(f"<{len(vector)}b", vector)
    return numbers, sqrt(sum(map(mul, numbers, numbers)))


# Detects dreams that lose variety: imaginations repeat themselves, and models that learn from themselves forget rare
# events (Shumailov et al., "AI models collapse when trained on recursively generated data", Nature 2024).
#
# The limits were measured: `tests/unit/core/test_collapse.py` has the scenarios of the narrowest pattern of the small
# world (20 requests about one verb: likeness 0.28, cosine 0.50) on one side, and an imagination that has two scenarios
# (at least 0.50) on the other.

WINDOW = 20
"""number of last dreams that are examined"""
LEAST = 10
"""least number of dreams for a finding"""
ALIKE_MAX = 0.4
"""mean likeness of two scenarios"""
COSINE_MAX = 0.6
"""mean cosine of two scenarios"""
REPEAT = 0.9
"""likeness from which a scenario counts as a repeat of an earlier one"""
REPEATS_MAX = 0.5
"""largest share of repeats"""
ANSWERS_ALIKE_MAX = 0.6
"""mean likeness of two answers"""
ANSWERS_ABOVE = 0.3
"""margin by which answers have to be more alike than scenarios, and than the first answers: likeness that a pattern's
answers have by nature is not a collapse"""
CERTAIN = -0.02
"""mean natural log-probability of a token: an answer of 50 tokens has a probability of 0.37 at least"""
CERTAIN_ALIKE_MAX = 0.45
"""mean likeness of two answers when all are `CERTAIN`"""
_PAIRS = 2048
_like, _near = lru_cache(_PAIRS)(likeness), lru_cache(_PAIRS)(cosine)
"""Cached: all pairs without the newest dream were compared when the dream before it was examined."""


class Dreamt(msgspec.Struct, frozen=True):
    """Record of a dream. `answer`: None: no answer; `logprob`: mean natural log-probability of its tokens; None: not
    known."""

    scenario: Sketch
    answer: Sketch | None = None
    logprob: float | None = None


def collapse(recent: Sequence[Dreamt], earliest: Sequence[Dreamt] = ()) -> str:
    """The collapse found in the last `WINDOW` of `recent` (oldest first), with its figures; empty: none. `earliest`:
    the first dreams, as reference; too few of them count as none."""
    last = recent[-WINDOW:]
    if len(last) < LEAST:
        return ""
    scenarios = [dream.scenario for dream in last]
    alike = _spread(scenarios, _like)
    if alike > ALIKE_MAX:
        return f"the last {len(last)} scenarios are too much alike: mean likeness {alike:.2f}, limit {ALIKE_MAX:.2f}"
    repeats = sum(any(_like(before, one) >= REPEAT for before in scenarios[:n]) for n, one in enumerate(scenarios))
    if repeats > REPEATS_MAX * len(last):
        return f"{repeats} of the last {len(last)} scenarios repeat another one, limit {REPEATS_MAX * len(last):.0f}"
    meaning = _spread(scenarios, _near)
    if meaning > COSINE_MAX:
        return f"the last {len(last)} scenarios are about the same: mean cosine {meaning:.2f}, limit {COSINE_MAX:.2f}"
    return _of_answers(last, earliest[:WINDOW], alike)


def _of_answers(last: Sequence[Dreamt], first: Sequence[Dreamt], scenarios: float) -> str:
    """Look for a collapse of the answers. `scenarios`: mean likeness of the scenarios."""
    answers = [dream.answer for dream in last if dream.answer is not None]
    before = [dream.answer for dream in first if dream.answer is not None]
    if len(answers) < LEAST:
        return ""
    alike = _spread(answers, _like)
    if alike <= scenarios + ANSWERS_ABOVE:
        return ""
    if len(before) >= LEAST and alike <= _spread(before, _like) + ANSWERS_ABOVE:
        return ""
    figures = f"mean likeness {alike:.2f}, of scenarios {scenarios:.2f}"
    if alike > ANSWERS_ALIKE_MAX:
        return f"the last {len(answers)} answers are too much alike: {figures}, limit {ANSWERS_ALIKE_MAX:.2f}"
    surest = [dream.logprob for dream in last if dream.logprob is not None]
    if alike > CERTAIN_ALIKE_MAX and len(surest) >= LEAST and min(surest) > CERTAIN:
        return (
            f"the last {len(surest)} answers are certain and too much alike: mean log-probability of a token "
            f"{fmean(surest):.3f}, each above {CERTAIN}; {figures}, limit {CERTAIN_ALIKE_MAX:.2f}"
        )
    return ""


def _spread(sketches: Sequence[Sketch], of: Callable[[Sketch, Sketch], float]) -> float:
    """Mean of `of` over all pairs."""
    return fmean(of(one, other) for one, other in combinations(sketches, 2))
