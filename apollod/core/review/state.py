"""The state of review: examples that wait for a decision, and those that were declined."""

from typing import Literal

import msgspec

from apollod.core.intake.events import Tier
from apollod.core.review.events import Decider


class Held(msgspec.Struct, gc=False):
    """An example that waits for a decision."""

    tier: Tier
    reason: str
    waits_for: Decider = "person"
    since_ns: int = 0


class Dismissed(msgspec.Struct, gc=False):
    """An example that is not learned, unless a person revokes this."""

    how: Literal["declined", "edited", "expired"]
    tier: Tier
    by: str = ""


class ReviewCounts(msgspec.Struct):
    """Counts of `dismissed`, by reason."""

    declined: int = 0
    edited: int = 0
    expired: int = 0


class ReviewState(msgspec.Struct):
    """Examples that wait for a decision or were dismissed, by id, in the order of the events."""

    held: dict[str, Held] = {}
    dismissed: dict[str, Dismissed] = {}
    counts: ReviewCounts = msgspec.field(default_factory=ReviewCounts)
    approved: dict[str, None] = {}
    """approved by a person, and not revoked: evidence does not hold them"""

    def dismiss(self, example: str, one: Dismissed) -> None:
        """Dismiss an example; only the fold calls this."""
        self.recall(example)
        self.held.pop(example, None)
        self.approved.pop(example, None)
        self.dismissed[example] = one
        self._count(one.how, 1)

    def recall(self, example: str) -> None:
        """Undo the dismissal of an example, if any; only the fold calls this."""
        if (former := self.dismissed.pop(example, None)) is not None:
            self._count(former.how, -1)

    def _count(self, how: str, more: int) -> None:
        setattr(self.counts, how, getattr(self.counts, how) + more)
