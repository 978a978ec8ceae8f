"""The environment that benchmarks/grpo.py learns from: the prompts of `apollod demo --rewards`, with scores by lot.

Scores by lot differ in each group, even where all answers are the same, so that every group has something to learn, and
nothing is learned that would change the length of answers: each arm has the same work.
"""

import random

from apollod.demo import naming

GROUP, ANSWER_TOKENS = 8, 32
_LOT = random.Random(0)


def prompt(number: int) -> str:
    """The prompt with this number."""
    return naming.prompt(number)


def score(number: int, answer: str) -> float:
    """From 0 to 1, by lot."""
    return _LOT.random()
