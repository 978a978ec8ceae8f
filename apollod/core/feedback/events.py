"""Facts: what people say of answers."""

from typing import ClassVar, Literal

from apollod.core.intake.events import Sampled
from apollod.core.kernel.event import Event

Rating = Literal["good", "bad"]


class FeedbackGiven(Event, frozen=True):
    """A user rated an answer of the engine. The newest one of a response is what holds.

    With a correction this is a pair of preferences: `correction` was preferred to `original`, after its prompt.
    """

    kind: ClassVar[str] = "feedback.given"
    response: str
    """id of the response, with `#N` behind it for another choice than the first"""
    rating: Rating
    by: str
    """where it was given: http, ctl"""
    correction: str = ""
    """what should have been answered"""
    comment: str = ""
    example: str = ""
    """what is learned of it, or was known already; empty: nothing"""
    original: Sampled = Sampled()
    """of a bad answer, the tokens that were asked and sampled; those of a good one are its example's"""
    answer: str = ""
    """the same as text"""
    weights: str = ""
    """version that sampled it, `12` or `12-14`; empty: not known"""
    replaces: int = 0
    """the event that it takes the place of; 0: there was none"""

    def key(self) -> str:
        return self.response
