"""How often a judge is right, how sure that is, and whether it is enough. Pure.

Right means: it says of what is known to be good or bad, by a planted case or by a person, what that is. The figure is
the balanced accuracy, the mean of the two rates, so that whoever always says the same has 0.5 however many cases of one
sort there are.
"""

from typing import NamedTuple

from apollod.core.judging.state import JudgingState
from apollod.core.rates import wilson

WINDOW = 100
"""of each sort; what is older does not count"""
LEAST = 10
"""of each sort, before a figure means anything"""


class Agreement(NamedTuple):
    """How many of what is good or bad were called so."""

    good: int
    of_good: int
    bad: int
    of_bad: int

    @property
    def figure(self) -> float | None:
        """Balanced accuracy, 0 to 1; None while there is nothing of one sort."""
        if not self.of_good or not self.of_bad:
            return None
        return (self.good / self.of_good + self.bad / self.of_bad) / 2

    @property
    def interval(self) -> tuple[float, float]:
        """The mean of the two rates' intervals, which is at least as wide as that of the mean."""
        good, bad = wilson(self.good, self.of_good), wilson(self.bad, self.of_bad)
        return (good[0] + bad[0]) / 2, (good[1] + bad[1]) / 2


def agreement(own: JudgingState) -> Agreement:
    """Over the last WINDOW of each sort."""
    return Agreement(sum(own.good), len(own.good), sum(own.bad), len(own.bad))


def figure_text(found: Agreement) -> str:
    """Such as `agreement 0.92 (0.74 to 0.98) over 12 good and 12 bad`."""
    if found.figure is None:
        return "agreement is not known yet"
    low, high = found.interval
    return f"agreement {found.figure:.2f} ({low:.2f} to {high:.2f}) over {found.of_good} good and {found.of_bad} bad"


def distrust(own: JudgingState, trust_min: float) -> str:
    """Why its verdicts do not decide; empty: they do."""
    if own.due:
        asked = len(own.cases) - len(own.due)
        return f"{asked} of {len(own.cases)} planted cases were asked"
    return shortfall(agreement(own), trust_min)


def shortfall(found: Agreement, trust_min: float) -> str:
    """Why so much agreement is not enough; empty: it is."""
    if found.figure is None or min(found.of_good, found.of_bad) < LEAST:
        return f"{LEAST} known cases of each sort are needed, there are {found.of_good} good and {found.of_bad} bad"
    return f"{figure_text(found)} is below trust_min {trust_min:g}" if found.figure < trust_min else ""
