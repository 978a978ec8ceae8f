"""Facts: decisions about examples before they are learned."""

from typing import ClassVar, Final, Literal

from apollod.core.intake.events import Tier
from apollod.core.kernel.event import Event

Decider = Literal["person", "judge", "evidence"]
"""evidence: a sign that the answer was right; a person may decide before"""

BY_EVIDENCE: Final = "evidence"
"""as who decides where a log shows how good an answer was"""


class ExampleHeld(Event, frozen=True):
    """An example is held until a person decides about it.

    `waits_for`: whose decision that is; `tier`: with which it is learned if it is approved; `by`: who held it, empty
    for the rule of its source, `evidence` for what a log shows about it; a person holds what was decided before to take
    that decision back.
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
    """An example is not to be learned, unless a person changes their mind."""

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
    """No decision came about these examples for `days`; or, with `waiting`, they waited for so long to be learned."""

    kind: ClassVar[str] = "example.expired"
    examples: tuple[str, ...]
    days: float
    waiting: bool = False
