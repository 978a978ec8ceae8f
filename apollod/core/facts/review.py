"""Review: examples that wait for a decision by a person, a judge or expiry. Events, inputs, effects and state."""

from typing import ClassVar, Final, Literal

import msgspec

from apollod.core.facts.intake.events import Tier
from apollod.core.facts.intake.inputs import Line
from apollod.core.kernel.event import Event, ExampleEvent
from apollod.core.kernel.input import Input

# --- events ----------------------------------------------------------------------------------------------------------

Decider = Literal["person", "judge", "evidence"]
"""evidence: a sign that the answer was right; a person may decide earlier"""

BY_EVIDENCE: Final = "evidence"
"""value of `by` for decisions from evidence in logs"""


class ExampleHeld(ExampleEvent, frozen=True):
    """An example is held until it is decided about.

    `waits_for`: the one who decides; `tier`: of the example if it is approved; `by`: the one who held it, empty for the
    rule of its source, `evidence` for evidence in a log; a person holds a decided example to revoke the decision.
    """

    kind: ClassVar[str] = "example.held"
    tier: Tier
    reason: str
    waits_for: Decider = "person"
    by: str = ""


class ExampleApproved(ExampleEvent, frozen=True):
    """A held example is to be learned; it waits at the end of its queue. `by`: a person, `judge`, or `evidence`."""

    kind: ClassVar[str] = "example.approved"
    tier: Tier
    by: str
    reason: str = ""


class ExampleDeclined(ExampleEvent, frozen=True):
    """An example is not to be learned, unless a person revokes this."""

    kind: ClassVar[str] = "example.declined"
    tier: Tier
    by: str
    reason: str = ""


class ExampleEdited(ExampleEvent, frozen=True):
    """Another example is learned in place of this one: `into`, which was accepted in the same transaction or before."""

    kind: ClassVar[str] = "example.edited"
    tier: Tier
    into: str
    by: str


class ExampleExpired(Event, frozen=True):
    """These examples were not decided for `days`; or, with `waiting`, waited that long to be learned."""

    kind: ClassVar[str] = "example.expired"
    examples: tuple[str, ...]
    days: float
    waiting: bool = False


# --- inputs ----------------------------------------------------------------------------------------------------------

Choice = Literal["approve", "decline", "hold"]


class Decision(msgspec.Struct, frozen=True):
    """A decision about an example. `only_in`: apply only if the example is still in this state (`core.example_state`);
    empty: in any state."""

    example: str
    choice: Choice
    reason: str = ""
    only_in: str = ""


class DecisionsGiven(Input, frozen=True):
    """A person decided. Decisions that come too late give no event. `together`: all of them or none."""

    decisions: tuple[Decision, ...]
    by: str
    together: bool = False


class EditGiven(Input, frozen=True):
    """A person wrote a replacement for `example`: a `line` with a record. `only_in`: as for a `Decision`; `known`: the
    journal holds that record already."""

    example: str
    line: Line
    by: str
    only_in: str = ""
    known: bool = False


# --- state -----------------------------------------------------------------------------------------------------------


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


def is_held(example: str, tier: Tier, share: float) -> bool:
    """True if an example waits for a person: all examples of a source with `share` 1, else that share of those not
    given directly, chosen by the content id (hex), so that every run chooses the same."""
    if share >= 1.0:
        return True
    return share > 0.0 and tier != "direct" and int(example[:8], 16) < share * 2**32
