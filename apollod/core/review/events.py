"""Events: decisions about examples before they are learned."""

from typing import ClassVar, Final, Literal

from apollod.core.intake.events import Tier
from apollod.core.kernel.event import Event

Decider = Literal["person", "judge", "evidence"]
"""evidence: a sign that the answer was right; a person may decide earlier"""

BY_EVIDENCE: Final = "evidence"
"""value of `by` for decisions from evidence in logs"""


class ExampleHeld(Event, frozen=True):
    """An example is held until it is decided about.

    `waits_for`: the one who decides; `tier`: of the example if it is approved; `by`: the one who held it, empty for the
    rule of its source, `evidence` for evidence in a log; a person holds a decided example to revoke the decision.
    """

    kind: ClassVar[str] = "example.held"
    example: str
    tier: Tier
    reason: str
    waits_for: Decider = "person"
    by: str = ""

    def key(self) -> str:
        return self.example


class ExampleApproved(Event, frozen=True):
    """A held example is to be learned; it waits at the end of its queue. `by`: a person, `judge`, or `evidence`."""

    kind: ClassVar[str] = "example.approved"
    example: str
    tier: Tier
    by: str
    reason: str = ""

    def key(self) -> str:
        return self.example


class ExampleDeclined(Event, frozen=True):
    """An example is not to be learned, unless a person revokes this."""

    kind: ClassVar[str] = "example.declined"
    example: str
    tier: Tier
    by: str
    reason: str = ""

    def key(self) -> str:
        return self.example


class ExampleEdited(Event, frozen=True):
    """Another example is learned in place of this one: `into`, which was accepted in the same transaction or before."""

    kind: ClassVar[str] = "example.edited"
    example: str
    tier: Tier
    into: str
    by: str

    def key(self) -> str:
        return self.example


class ExampleExpired(Event, frozen=True):
    """These examples were not decided for `days`; or, with `waiting`, waited that long to be learned."""

    kind: ClassVar[str] = "example.expired"
    examples: tuple[str, ...]
    days: float
    waiting: bool = False
