"""Ratings of answers that the engine gave. Events, inputs, effects and state."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.intake.events import Sampled
from apollod.core.facts.intake.inputs import Line
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input

# --- events ----------------------------------------------------------------------------------------------------------

Rating = Literal["good", "bad"]


class FeedbackGiven(Event, frozen=True):
    """A user rated an answer of the engine. The newest rating of a response holds.

    With a correction this is a pair of preferences: `correction` was preferred to `original`, after its prompt.
    """

    kind: ClassVar[str] = "feedback.given"
    response: str
    """id of the response, followed by `#N` for another choice than the first"""
    rating: Rating
    by: str
    """interface of the rating: http, ctl"""
    correction: str = ""
    """the better answer"""
    comment: str = ""
    example: str = ""
    """the example learned from it, or known already; empty: none"""
    original: Sampled = Sampled()
    """prompt and sampled tokens of a bad answer; those of a good one are its example's"""
    answer: str = ""
    """the bad answer as text"""
    weights: str = ""
    """version that sampled the answer, `12` or `12-14`; empty: not known"""
    replaces: int = 0
    """sequence number of the rating that this one replaces; 0: none"""

    def key(self) -> str:
        return self.response


# --- inputs ----------------------------------------------------------------------------------------------------------


class Rated(Input, frozen=True):
    """A rating of a captured answer, with what the journal knows of the answer.

    `line`: line to learn. `previous`: earlier rating of this answer, event `previous_seq`; `formers`: examples of all
    its earlier ratings. `known`: the journal has the line's example. `learned`: the example that learned this answer as
    it was sampled, empty for one of an archive, None if none did.
    """

    response: str
    rating: Rating
    by: str
    correction: str = ""
    comment: str = ""
    original: Sampled = Sampled()
    answer: str = ""
    weights: str = ""
    line: Line | None = None
    previous: FeedbackGiven | None = None
    previous_seq: int = 0
    formers: tuple[str, ...] = ()
    known: bool = False
    learned: str | None = None

    @property
    def is_news(self) -> bool:
        """True if it differs from the previous rating."""
        before = self.previous
        return before is None or (before.rating, before.correction, before.comment) != (
            self.rating, self.correction, self.comment,
        )  # fmt: skip

    @property
    def example(self) -> str:
        """The example to learn because of it; for a good answer that a log or an earlier rating brought, that one."""
        if self.line is None:
            return ""
        before = self.previous
        if self.rating == "good" and before is not None and before.rating == "good":
            return before.example
        return self.learned if self.rating == "good" and self.learned is not None else self.line.example


# --- state -----------------------------------------------------------------------------------------------------------


class FeedbackState(msgspec.Struct):
    """Totals over the life of the journal."""

    rated: int = 0
    """rated answers"""
