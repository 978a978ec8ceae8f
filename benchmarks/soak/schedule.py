"""Which act comes when, drawn from a seed: the same seed and part give the same acts. Pure."""

import random
from typing import NamedTuple

KILL = ("engine", "engine core", "trainer", "supervisor")
CHILDREN = ("engine", "trainer")

PERIODS: dict[str, float] = {
    "kill": 150.0, "hang": 300.0, "hang for good": 1800.0, "disk": 180.0, "files": 45.0, "requests": 90.0,
    "teach": 60.0, "feedback": 60.0, "poison": 600.0, "rollback": 420.0, "forget": 480.0, "checkpoint": 300.0,
}  # fmt: skip
"""Seconds between two acts of a kind, on average. A child seldom crashes five times in ten minutes so, after which it
is given up."""
ROUGH = ("kill", "hang", "hang for good", "disk")
"""kinds that end processes"""
HOUR_S, ROUGH_S = 3600.0, 1500.0
"""Of each hour of a part, these come in the first 25 minutes only: a leak shows in a life that lasts."""
FIRST_S = 20.0
EVERY_MIN = 0.4
"""share of its period for which an act does not come again"""


class Act(NamedTuple):
    """`kind` of `PERIODS`, `at_s` seconds after the start of the part; `chance`: seed of all that it draws itself."""

    at_s: float
    kind: str
    chance: str


def schedule(seed: int, part: int, seconds: float) -> list[Act]:
    """The acts of a part, in the order of time. Those of one kind are drawn apart from the others, so that another
    kind changes none of them."""
    acts = [act for kind in PERIODS for act in _of(kind, f"{seed}:{part}", seconds)]
    return sorted(acts)


def _of(kind: str, seed: str, seconds: float) -> list[Act]:
    """Waits have a least length and an exponential rest: nobody can foresee the next one. The first comes after a
    part of the period, so that short parts have all kinds."""
    chance, period, acts = random.Random(f"{seed}:{kind}"), PERIODS[kind], list[Act]()
    at = FIRST_S + chance.uniform(0.0, 0.7) * period
    while at < seconds:
        if kind not in ROUGH or at % HOUR_S < ROUGH_S:
            acts.append(Act(at, kind, f"{seed}:{kind}:{at:.3f}"))
        at += EVERY_MIN * period + chance.expovariate(1.0 / ((1.0 - EVERY_MIN) * period))
    return acts
