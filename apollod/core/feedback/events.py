"""Events: ratings of answers."""

from typing import ClassVar, Literal

from apollod.core.intake.events import Sampled
from apollod.core.kernel.event import Event

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
