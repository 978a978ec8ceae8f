"""A judge's agreement with known cases, its confidence interval, and whether its verdicts decide. Pure.

A verdict is right if it agrees with a planted case or with a person's decision. The figure is the balanced accuracy,
the mean of the rates on good and on bad, so that a judge with a constant answer has 0.5 for any mix of cases. Trust
needs the lower end of the figure to reach `trust_min`.
"""

from typing import NamedTuple

from apollod.core.facts.judging.state import JudgingState
from apollod.core.facts.judging.suspicion import alarming
from apollod.core.rates import Z_95_ONE_SIDED, wilson

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
