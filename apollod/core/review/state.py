"""What waits for a decision, and what was decided against."""

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
    """An example that is not to be learned. A person may change that."""

    how: Literal["declined", "edited", "expired"]
    tier: Tier
    by: str = ""


class ReviewState(msgspec.Struct):
    """By the ids of examples, in the order of the events."""

    held: dict[str, Held] = {}
    dismissed: dict[str, Dismissed] = {}
