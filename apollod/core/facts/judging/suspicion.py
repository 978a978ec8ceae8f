"""Detect that a judge has become worse: a sequential test, valid after every known case. Pure.

H0: at most a tolerated share p0 of the cases of one sort are judged wrong. A wrong answer multiplies the evidence by
p1 / p0, a right one by (1 - p1) / (1 - p0), where p1 is the share of a judge that became worse. Under H0 the mean of
that factor is at most 1, since it grows with the share that is wrong. The evidence is summed over all moments at which
the judge may have become worse, as in an e-detector of Shiryaev and Roberts (Shin, Ramdas and Rinaldo 2023,
"E-detectors", arXiv:2203.03532; `core/facts/quality/sequential.py` has the one of the quality guard):

    M <- (M + 1) * factor,    e-value: mean of M over two p1

so the mean number of cases to a false alarm is at least ALARM. A judge that always says yes is found by four bad cases.
"""

from collections.abc import Mapping

import msgspec

ALARM = 100.0
"""e-value that ends trust: also the least mean number of cases between two false alarms"""
SUSPECTED = 3.0
"""e-value from which only planted cases are asked, until they clear it or end trust"""
SURE = 1.5
"""e-value up to which earlier verdicts are trusted"""
WORSE = (0.375, 0.875)
"""p1, as shares of the way from the tolerated share to 1"""
E_MAX = 1e15
TOLERATED_MIN = 0.02


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
