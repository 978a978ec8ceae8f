"""Evidence about an answer in a log line, before it is recorded."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Literal

import msgspec

from apollod.core.facts.intake.events import Polarity

Learn = Literal["unrejected", "positive", "all"]
"""Answers of a log to learn: those without evidence against them ("unrejected"), of these only those with positive
evidence ("positive"), or all. The others are held."""

COUNTS = 0.4
"""Strength from which evidence decides. Weaker are an interrupt, a failed call, and a check that was run again in the
same turn."""

BY_SCORE = "rejected-by-score"
"""Kind of evidence that the served model gives where no cue decides."""
BY_SCORE_STRENGTH = 0.45

SURELY_AGAINST: tuple[tuple[str, Polarity], ...] = (
    ("rating", "bad"), ("undo", "bad"), ("rewound", "bad"), ("regenerated", "bad"), ("refused", "bad"),
    ("correction", "correction"), (BY_SCORE, "correction"),
)  # fmt: skip
"""Kinds of evidence against an answer that decide at any strength: their ids alone suffice."""


class Evidence(msgspec.Struct, frozen=True):
    """Fields as in `SignalFlagged`."""

    kind: str
    polarity: Polarity
    strength: float
    answer: str = ""
    session: str = ""
    records: tuple[str, ...] = ()
    quote: str = ""
    followed: str = ""
    turn: tuple[str, ...] = ()
    """keys of other answers to the same prompt that it is also about"""

    @property
    def id(self) -> str:
        """Hex of BLAKE2b-128 of kind, polarity and answer: the same in a fork of the session or a rewritten log. An
        answer without a key is identified by session and record."""
        about = (self.answer,) if self.answer else (self.session, *self.records[:1])
        return _id(self.kind, self.polarity, *about)


def rejections(answer: str) -> Iterator[str]:
    """Possible ids of SURELY_AGAINST evidence about an answer, computed from the answer's key."""
    return (_id(kind, polarity, answer) for kind, polarity in SURELY_AGAINST)


def speaks_against(polarity: Polarity, strength: float) -> bool:
    """True if such evidence keeps an answer from being learned."""
    return polarity != "good" and strength >= COUNTS


def speaks_for(polarity: Polarity, strength: float) -> bool:
    """True if such evidence releases an answer where positive evidence is required."""
    return polarity == "good" and strength >= COUNTS


def _id(*parts: str) -> str:
    return blake2b("\x00".join(parts).encode(), digest_size=16).hexdigest()
