"""The state of judging: examples that wait for the judge, questions under way, and the judge's record."""

from typing import Literal

import msgspec

from apollod.core.facts.judging.suspicion import Suspicion
from apollod.core.facts.judging.votes import Verdict
from apollod.core.schedules import NO_FAILURE, Retry

SAME, CHANGED = "same:", "changed:"
"""Id prefixes of cases made from an approved example: unchanged (good), and damaged (bad)."""
MADE_MAX = 20


class Asked(msgspec.Struct, gc=False):
    """A question without an answer."""

    attempt: int
    planted: bool


class Judge(msgspec.Struct, frozen=True):
    """Identity of the judge; trust belongs to the combination of all fields."""

    model: str = ""
    prompt_hash: str = ""
    endpoint: str = ""
    sampling: str = ""


class JudgingState(msgspec.Struct):
    """Subjects are examples and planted cases, by their ids."""

    ready: bool = False
    """`judge.configured` was recorded in this life"""
    judge: Judge = Judge()
    served: bool = False
    """the judge is the model that this daemon serves"""
    waiting: dict[str, None] = {}
    """examples that wait for its verdict, the oldest first"""
    better: dict[str, str] = {}
    """by declined example, the better answer that was made an example of its own"""
    written: dict[str, None] = {}
    """of these, examples that the judge wrote itself"""
    open: dict[str, Asked] = {}
    attempts: dict[str, int] = {}
    """that failed, of what is to be asked again"""
    retry: Retry = NO_FAILURE
    """of the endpoint"""
    error: str = ""
    """why the last question had no answer; empty after an answer"""

    cases: dict[str, Literal["good", "bad"]] = {}
    due: dict[str, None] = {}
    """cases that this judge was never asked"""
    reviewed: dict[str, None] = {}
    """examples that people approved, the newest last, at most `MADE_MAX`: cases are made of them"""
    turns: dict[str, int] = {}
    """number of repeated cases of each sort, from which the next one follows"""
    since: dict[str, int] = {}
    """verdicts since the last planted case that could show them wrong: good verdicts since a bad case (`bad`), bad
    verdicts since a good case (`good`)"""
    suspicions: dict[str, Suspicion] = {}
    """by sort of cases"""
    approved: dict[str, None] = {}
    """examples approved since the judge last passed its checks on bad cases"""
    said: dict[str, Verdict] = {}
    """its verdicts on examples about which a person can still decide otherwise"""
    good: list[bool] = []
    """for good examples and cases, true if judged good; the newest last, at most `agreement.WINDOW`"""
    bad: list[bool] = []
    """for bad ones, true if judged bad"""
    verdicts: int = 0
    """number of verdicts on examples, over the life of the journal"""

    def next_case(self, sort: str) -> str:
        """The planted case of this sort to be repeated next; empty: none. Cases made of approved examples take turns
        with the others."""
        made = [(SAME if sort == "good" else CHANGED) + example for example in self.reviewed]
        cases = [*made, *(case for case, expected in self.cases.items() if expected == sort)]
        return cases[self.turns.get(sort, 0) % len(cases)] if cases else ""

    def knows(self, case: str) -> bool:
        """True if the case takes part in the rotation."""
        return case in self.cases or case.partition(":")[2] in self.reviewed

    def expected(self, case: str) -> str:
        """The right verdict on a planted case; empty: not a planted case."""
        if case.startswith((SAME, CHANGED)):
            return "good" if case.startswith(SAME) else "bad"
        return self.cases.get(case, "")
