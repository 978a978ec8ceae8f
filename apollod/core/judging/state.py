"""Whom the judge is to be asked about, what it is being asked, and how often it was right."""

from typing import Literal

import msgspec

from apollod.core.judging.votes import Verdict


class Asked(msgspec.Struct, gc=False):
    """A question without an answer."""

    attempt: int
    planted: bool


class Judge(msgspec.Struct, frozen=True):
    """Whose verdicts they are. Another model or another prompt has to earn trust anew."""

    model: str = ""
    prompt_hash: str = ""


class JudgingState(msgspec.Struct):
    """Subjects are examples and planted cases, by their ids."""

    ready: bool = False
    """`judge.configured` was recorded in this life"""
    judge: Judge = Judge()
    served: bool = False
    """it is the model that this daemon serves"""
    waiting: dict[str, None] = {}
    """examples that wait for its verdict, the oldest first"""
    written: dict[str, None] = {}
    """of these, what it wrote itself"""
    open: dict[str, Asked] = {}
    attempts: dict[str, int] = {}
    """that failed, of what is to be asked again"""
    failures: int = 0
    """of the endpoint, in a row"""
    retry_ns: int = 0
    """not before then it is asked again"""
    retry_s: float = 0.0
    error: str = ""
    """why the last question had no answer; empty after one that had"""

    cases: dict[str, Literal["good", "bad"]] = {}
    due: dict[str, None] = {}
    """cases that this judge was never asked about"""
    turn: int = 0
    """how many cases were asked again; which one is next follows from it"""
    since_case: int = 0
    """verdicts on examples since the last planted case"""
    since_case_of_dreams: int = 0
    """the same, on what was dreamt"""
    said: dict[str, Verdict] = {}
    """its verdicts on examples about which a person can still say otherwise"""
    good: list[bool] = []
    """of what is good, by cases and by people: did it say so? The newest last, at most `agreement.WINDOW`"""
    bad: list[bool] = []
    """the same of what is bad"""
    verdicts: int = 0
    """on examples, over the life of the journal"""

    @property
    def next_case(self) -> str:
        """The planted case whose turn it is to be asked again; empty: there is none."""
        return list(self.cases)[self.turn % len(self.cases)] if self.cases else ""
