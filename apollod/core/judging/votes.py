"""Combines several answers of a judge to one question into a verdict. Pure."""

from collections.abc import Sequence
from typing import Literal

import msgspec

JUDGE = "judge"
"""as whom a model is named that gave a verdict"""
Verdict = Literal["good", "bad", "unsure"]


class Vote(msgspec.Struct, frozen=True):
    """One answer of the judge, checked: `quote` stands in what was judged."""

    verdict: Verdict
    quote: str = ""
    reason: str = ""
    better: str | None = None
    """the answer that should have been given, if it wrote one"""


def agreed(votes: Sequence[Vote]) -> Verdict:
    """The verdict of all votes; unsure where they differ."""
    said = {vote.verdict for vote in votes}
    return said.pop() if len(said) == 1 else "unsure"


def spokesman(votes: Sequence[Vote]) -> Vote:
    """The vote whose quote, reason and better answer are told: the first one with a better answer if what it says was
    agreed on, else the first one that says what was agreed on, else the first one."""
    verdict = agreed(votes)
    saying = [vote for vote in votes if vote.verdict == verdict]
    return next((vote for vote in saying if vote.better is not None), (saying or list(votes))[0])
