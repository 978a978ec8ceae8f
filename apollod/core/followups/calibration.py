"""How far the model's answers about follow-ups can be trusted, told from cases whose answer is known. Pure.

Both sorts of cases are divided in two halves. The threshold chosen on one half tells the other, so that no case is
counted that had a part in the choice; follow-ups are told by the threshold chosen on all.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from apollod.core.followups.events import FollowUpsCalibrated, Known
from apollod.core.rates import Z_95_ONE_SIDED, wilson

PRECISION_MIN = 0.8
"""that the one-sided 95 % lower bound has to reach"""
RECALL_MIN = 0.5
FALSE_ALARM = 2
"""cases found that a wrongly found one outweighs where a threshold is chosen"""


class Counts(NamedTuple):
    """Of cases: all, those that reject, those called so, and those of them rightly."""

    cases: int
    rejecting: int
    flagged: int
    hits: int

    @property
    def right(self) -> int:
        return self.cases - self.rejecting - self.flagged + 2 * self.hits


def threshold_of(told: Sequence[Known]) -> float:
    """Between two neighbouring answers, or above all: where found cases outweigh false alarms most; the highest of
    several such. Raises ValueError without answers."""
    odds = sorted({one.odds for one in told}, reverse=True)
    places = [odds[0] + 1.0, *((above + below) / 2 for above, below in pairwise(odds))]
    return max(places, key=lambda place: _worth(told, place))


def _worth(told: Sequence[Known], threshold: float) -> int:
    found = counted(told, threshold)
    return found.hits - FALSE_ALARM * (found.flagged - found.hits)


def counted(told: Sequence[Known], threshold: float) -> Counts:
    """What this threshold calls rejecting."""
    flagged = [one.rejects for one in told if one.odds >= threshold]
    return Counts(len(told), sum(one.rejects for one in told), len(flagged), sum(flagged))


def measured(told: Sequence[Known]) -> Counts:
    """Over both halves, each told by the threshold of the other. None is empty where there are two of each sort."""
    sorts = [one for one in told if one.rejects], [one for one in told if not one.rejects]
    one, other = ([*sorts[0][n::2], *sorts[1][n::2]] for n in (0, 1))
    if not one or not other:
        return Counts(len(told), len(sorts[0]), 0, 0)
    both = counted(other, threshold_of(one)), counted(one, threshold_of(other))
    return Counts(*map(sum, zip(*both, strict=True)))


def shortfall(found: Counts) -> str:
    """Why the model is not asked about follow-ups; empty: it is."""
    lower = wilson(found.hits, found.flagged, Z_95_ONE_SIDED)[0]
    if found.flagged and lower >= PRECISION_MIN and found.hits >= RECALL_MIN * found.rejecting:
        return ""
    return (
        f"right in {found.right} of {found.cases} cases: found {found.hits} of {found.rejecting} that reject and "
        f"{found.flagged - found.hits} others (precision at least {lower if found.flagged else 0.0:.2f}, "
        f"{PRECISION_MIN:g} is needed)"
    )


def counts_of(event: FollowUpsCalibrated) -> Counts:
    """Those that it recorded."""
    return Counts(event.cases, event.rejecting, event.flagged, event.hits)
