"""Inputs: a person rates an answer."""

from apollod.core.feedback.events import FeedbackGiven, Rating
from apollod.core.intake.events import Sampled
from apollod.core.intake.inputs import Line
from apollod.core.kernel.input import Input


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
