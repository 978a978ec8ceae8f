"""Calibration of the follow-up classifier on labelled cases: threshold, precision and recall. Pure.

Two-fold cross-validation: the cases of each label are split in halves, and the threshold chosen on one half classifies
the other, so that no case is counted that influenced the choice. Real follow-ups use the threshold chosen on all cases.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from apollod.core.followups.events import FollowUpsCalibrated, Known
from apollod.core.rates import Z_95_ONE_SIDED, wilson

PRECISION_MIN = 0.8
"""the least precision that the one-sided 95 % lower bound has to reach"""
RECALL_MIN = 0.5
FALSE_ALARM = 2
"""Cost of a false positive when a threshold is chosen, in true positives."""


class Counts(NamedTuple):
    """Counts of cases: all, rejecting (positives), called rejecting, and correctly called so (true positives)."""

    cases: int
    rejecting: int
    flagged: int
    hits: int

    @property
    def right(self) -> int:
        return self.cases - self.rejecting - self.flagged + 2 * self.hits


def threshold_of(told: Sequence[Known]) -> float:
    """Choose the threshold that maximises true positives minus weighted false positives: a midpoint between two
    neighbouring scores, or one above all; the highest on a tie. Raises ValueError without answers."""
    odds = sorted({one.odds for one in told}, reverse=True)
    places = [odds[0] + 1.0, *((above + below) / 2 for above, below in pairwise(odds))]
    return max(places, key=lambda place: _worth(told, place))


def _worth(told: Sequence[Known], threshold: float) -> int:
    found = counted(told, threshold)
    return found.hits - FALSE_ALARM * (found.flagged - found.hits)


def counted(told: Sequence[Known], threshold: float) -> Counts:
    """Count the cases that this threshold calls rejecting, and how many of them correctly."""
    flagged = [one.rejects for one in told if one.odds >= threshold]
    return Counts(len(told), sum(one.rejects for one in told), len(flagged), sum(flagged))


def measured(told: Sequence[Known]) -> Counts:
    """Counts over both halves, each classified by the threshold of the other. With two cases of each label neither
    half is empty."""
    sorts = [one for one in told if one.rejects], [one for one in told if not one.rejects]
    one, other = ([*sorts[0][n::2], *sorts[1][n::2]] for n in (0, 1))
    if not one or not other:
        return Counts(len(told), len(sorts[0]), 0, 0)
    both = counted(other, threshold_of(one)), counted(one, threshold_of(other))
    return Counts(*map(sum, zip(*both, strict=True)))


def shortfall(found: Counts) -> str:
    """Reason not to ask the model about follow-ups; empty: none."""
    lower = wilson(found.hits, found.flagged, Z_95_ONE_SIDED)[0]
    if found.flagged and lower >= PRECISION_MIN and found.hits >= RECALL_MIN * found.rejecting:
        return ""
    return (
        f"right in {found.right} of {found.cases} cases: found {found.hits} of {found.rejecting} that reject and "
        f"{found.flagged - found.hits} others (precision at least {lower if found.flagged else 0.0:.2f}, "
        f"{PRECISION_MIN:g} is needed)"
    )


def counts_of(event: FollowUpsCalibrated) -> Counts:
    """Counts that the event recorded."""
    return Counts(event.cases, event.rejecting, event.flagged, event.hits)
