"""Combines several answers of a judge to one question into a verdict. Pure."""

from collections.abc import Sequence
from typing import Literal

import msgspec

JUDGE = "judge"
"""value of `by` for verdicts of a model"""
Verdict = Literal["good", "bad", "unsure"]


class Vote(msgspec.Struct, frozen=True):
    """One answer of the judge, checked: `quote` occurs in the judged text."""

    verdict: Verdict
    quote: str = ""
    reason: str = ""
    better: str | None = None
    """a better answer, if it wrote one"""


def agreed(votes: Sequence[Vote]) -> Verdict:
    """The common verdict of all votes; unsure if they differ."""
    said = {vote.verdict for vote in votes}
    return said.pop() if len(said) == 1 else "unsure"


def spokesman(votes: Sequence[Vote]) -> Vote:
    """The vote whose quote, reason and better answer are recorded: the first vote for the agreed verdict with a better
    answer, else the first one for that verdict, else the first one."""
    verdict = agreed(votes)
    saying = [vote for vote in votes if vote.verdict == verdict]
    return next((vote for vote in saying if vote.better is not None), (saying or list(votes))[0])
