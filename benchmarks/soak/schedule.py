"""The schedule of acts, drawn from a seed: the same seed and part give the same acts. Pure."""

import random
from typing import NamedTuple

KILL = ("engine", "engine core", "trainer", "supervisor")
CHILDREN = ("engine", "trainer")

PERIODS: dict[str, float] = {
    "kill": 150.0, "hang": 300.0, "hang for good": 1800.0, "disk": 180.0, "files": 45.0, "requests": 90.0,
    "teach": 60.0, "feedback": 60.0, "poison": 600.0, "rollback": 420.0, "forget": 480.0, "checkpoint": 300.0,
}  # fmt: skip
"""Mean seconds between two acts of a kind, so rare that a child seldom crashes five times in ten minutes; then it
would be given up."""
ROUGH = ("kill", "hang", "hang for good", "disk")
"""kinds that end processes"""
HOUR_S, ROUGH_S = 3600.0, 1500.0
"""`ROUGH` acts come only in the first 25 minutes of each hour of a part: leaks show only in long lives."""
FIRST_S = 20.0
EVERY_MIN = 0.4
"""least wait between two acts of a kind, as a share of their period"""


class Act(NamedTuple):
    """`kind` of `PERIODS`, `at_s` seconds after the start of the part; `chance`: seed of the act's own random
    choices."""

    at_s: float
    kind: str
    chance: str


def schedule(seed: int, part: int, seconds: float) -> list[Act]:
    """The acts of a part, in the order of time. Each kind is drawn independently, so that another kind changes none of
    them."""
    acts = [act for kind in PERIODS for act in _of(kind, f"{seed}:{part}", seconds)]
    return sorted(acts)


def _of(kind: str, seed: str, seconds: float) -> list[Act]:
    """The acts of one kind. Waits have a least length and an exponential rest, so that the next act is unpredictable.
    The first comes after a part of the period, so that short parts have all kinds."""
    chance, period, acts = random.Random(f"{seed}:{kind}"), PERIODS[kind], list[Act]()
    at = FIRST_S + chance.uniform(0.0, 0.7) * period
    while at < seconds:
        if kind not in ROUGH or at % HOUR_S < ROUGH_S:
            acts.append(Act(at, kind, f"{seed}:{kind}:{at:.3f}"))
        at += EVERY_MIN * period + chance.expovariate(1.0 / ((1.0 - EVERY_MIN) * period))
    return acts
