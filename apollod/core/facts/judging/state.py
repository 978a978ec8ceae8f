"""The state of judging: examples that wait for the judge, questions under way, the judge's record and trust in it."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from apollod.core.facts.judging.events import Verdict
from apollod.core.rates import Z_95_ONE_SIDED, wilson
from apollod.core.schedules import NO_FAILURE, Retry

# Detect that a judge has become worse: a sequential test, valid after every known case. H0: at most a tolerated share
# p0 of the cases of one sort are judged wrong. A wrong answer multiplies the evidence by p1 / p0, a right one by (1 -
# p1) / (1 - p0), where p1 is the share of a judge that became worse. Under H0 the mean of that factor is at most 1,
# since it grows with the share that is wrong. The evidence is summed over all moments at which the judge may have
# become worse, as in an e-detector of Shiryaev and Roberts (Shin, Ramdas and Rinaldo 2023, "E-detectors",
# arXiv:2203.03532; `core/facts/quality/sequential.py` has the one of the quality guard): M <- (M + 1) * factor,
# e-value: mean of M over two p1. So the mean number of cases to a false alarm is at least ALARM. A judge that always
# says yes is found by four bad cases.
ALARM = 100.0
"""e-value that ends trust: also the least mean number of cases between two false alarms"""
SUSPECTED = 3.0
"""e-value from which only planted cases are asked, until they clear it or end trust"""
SURE = 1.5
"""e-value up to which earlier verdicts are trusted"""
WORSE = (0.375, 0.875)
"""p1, as shares of the way from the tolerated share to 1"""
E_MAX, TOLERATED_MIN = 1e15, 0.02


class Suspicion(msgspec.Struct, frozen=True):
    """Evidence that the judge gets more cases of one label wrong than is tolerated."""

    detectors: tuple[float, ...] = (0.0,) * len(WORSE)

    @property
    def e_value(self) -> float:
        return sum(self.detectors) / len(self.detectors)


def seen(before: Suspicion, right: bool, trust_min: float) -> Suspicion:
    """The suspicion after one more known case of its sort."""
    p0 = max(TOLERATED_MIN, 1.0 - trust_min)
    detectors = []
    for kept, worse in zip(before.detectors, WORSE, strict=True):
        p1 = p0 + worse * (1.0 - p0)
        factor = (1.0 - p1) / (1.0 - p0) if right else p1 / p0
        detectors.append(min(E_MAX, (kept + 1.0) * factor))
    return Suspicion(tuple(detectors))


def suspected(suspicions: Mapping[str, Suspicion]) -> str:
    """The sort of cases, good or bad, that the judge may have begun to get wrong, the more probable one; empty:
    none."""
    sort = max(suspicions, key=lambda one: suspicions[one].e_value, default="")
    return sort if sort and suspicions[sort].e_value >= SUSPECTED else ""


def alarming(suspicions: Mapping[str, Suspicion]) -> str:
    """Reason to end trust now; empty: none."""
    sort = suspected(suspicions)
    if not sort or suspicions[sort].e_value < ALARM:
        return ""
    return f"it gets what is {sort} wrong more often than before (e-value {suspicions[sort].e_value:.0f})"


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
    """for good examples and cases, true if judged good; the newest last, at most `WINDOW`"""
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


# A judge's agreement with known cases, its confidence interval, and whether its verdicts decide.
# A verdict is right if it agrees with a planted case or with a person's decision. The figure is the balanced accuracy,
# the mean of the rates on good and on bad, so that a judge with a constant answer has 0.5 for any mix of cases. Trust
# needs the lower end of the figure to reach `trust_min`.
WINDOW = 100
"""newest cases of each sort that count"""
LEAST = 10
"""least number of cases of each sort for a meaningful figure"""


class Agreement(NamedTuple):
    """Counts of good and bad cases, and of those judged rightly."""

    good: int
    of_good: int
    bad: int
    of_bad: int

    @property
    def figure(self) -> float | None:
        """Balanced accuracy, 0 to 1; None while one sort has no cases."""
        if not self.of_good or not self.of_bad:
            return None
        return (self.good / self.of_good + self.bad / self.of_bad) / 2

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval: the mean of the two rates' intervals, at least as wide as the interval of the mean."""
        good, bad = wilson(self.good, self.of_good), wilson(self.bad, self.of_bad)
        return (good[0] + bad[0]) / 2, (good[1] + bad[1]) / 2

    @property
    def lower(self) -> float:
        """One-sided 95 % lower bound of the figure: the mean of those of the two rates."""
        good, bad = wilson(self.good, self.of_good, Z_95_ONE_SIDED), wilson(self.bad, self.of_bad, Z_95_ONE_SIDED)
        return (good[0] + bad[0]) / 2


def agreement(own: JudgingState) -> Agreement:
    """Agreement over the last WINDOW cases of each sort."""
    return Agreement(sum(own.good), len(own.good), sum(own.bad), len(own.bad))


def figure_text(found: Agreement) -> str:
    """Text such as `agreement 0.92, at least 0.80 (95 %), over 12 good and 12 bad`."""
    if found.figure is None:
        return "agreement is not known yet"
    return (
        f"agreement {found.figure:.2f}, at least {found.lower:.2f} (95 %), "
        f"over {found.of_good} good and {found.of_bad} bad"
    )


def distrust(own: JudgingState, trust_min: float) -> str:
    """Reason why its verdicts do not decide; empty: they do."""
    if own.due:
        asked = len(own.cases) - len(own.due)
        return f"{asked} of {len(own.cases)} planted cases were asked"
    return shortfall(agreement(own), trust_min) or alarming(own.suspicions)


def shortfall(found: Agreement, trust_min: float) -> str:
    """Reason why this agreement is not enough; empty: it is."""
    if found.figure is None or min(found.of_good, found.of_bad) < LEAST:
        return f"{LEAST} known cases of each sort are needed, there are {found.of_good} good and {found.of_bad} bad"
    return f"{figure_text(found)}: below trust_min {trust_min:g}" if found.lower < trust_min else ""


def is_promising(found: Agreement, trust_min: float) -> bool:
    """True if more cases could establish trust: agreement is high enough, but the sample is too small to be sure."""
    known = min(found.of_good, found.of_bad)
    return LEAST <= known < WINDOW and found.figure is not None and found.lower < trust_min <= found.figure
