"""Detects dreams that lose variety: imaginations repeat themselves, and models that learn from themselves forget rare
events (Shumailov et al., "AI models collapse when trained on recursively generated data", Nature 2024). Pure.

The limits were measured: `tests/unit/core/test_collapse.py` has the scenarios of the narrowest pattern of the small
world (20 requests about one verb: likeness 0.28, cosine 0.50) on one side, and an imagination that has two scenarios
(at least 0.50) on the other.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from statistics import fmean

import msgspec

from apollod.core.facts.dreams.likeness import cosine, likeness
from apollod.core.facts.dreams.scenario import Sketch

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
