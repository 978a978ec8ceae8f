"""Prepares what a log line shows about an answer, before it is recorded."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Literal

import msgspec

from apollod.core.intake.events import Polarity

Learn = Literal["unrejected", "positive", "all"]
"""Answers of a log to learn: those without evidence against them ("unrejected"), of these only those with positive
evidence ("positive"), or all. The others are held."""

COUNTS = 0.4
"""Strength from which evidence decides. Less is what an interrupt says, a call that failed, and a check that was run
again in the same turn."""

BY_SCORE = "rejected-by-score"
"""Kind of evidence that the served model gives where no cue speaks."""
BY_SCORE_STRENGTH = 0.45

SURELY_AGAINST: tuple[tuple[str, Polarity], ...] = (
    ("rating", "bad"), ("undo", "bad"), ("rewound", "bad"), ("regenerated", "bad"), ("refused", "bad"),
    ("correction", "correction"), (BY_SCORE, "correction"),
)  # fmt: skip
"""Kinds of evidence against an answer that decide however weak they are: known by their ids alone."""


class Evidence(msgspec.Struct, frozen=True):
    """See `SignalFlagged`, whose fields these are."""

    kind: str
    polarity: Polarity
    strength: float
    answer: str = ""
    session: str = ""
    records: tuple[str, ...] = ()
    quote: str = ""
    followed: str = ""
    turn: tuple[str, ...] = ()
    """keys of the other answers to the same prompt, which it speaks of, too"""

    @property
    def id(self) -> str:
        """Hex of BLAKE2b-128 of what it says of which answer: also a fork of the session, or a log that was written
        anew, says it once. An answer without a key is known by session and record."""
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
