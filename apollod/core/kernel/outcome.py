"""The outcome of an input: events to record, then effects to run."""

from typing import NamedTuple, TypeVar

from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event

E = TypeVar("E", bound=Event)


class Outcome(NamedTuple):
    """Events, which are durable and folded before the first effect runs, and effects."""

    events: list[Event]
    effects: list[Effect]

    def __bool__(self) -> bool:
        return bool(self.events or self.effects)

    def then(self, other: "Outcome") -> "Outcome":
        """Concatenate both outcomes."""
        return Outcome([*self.events, *other.events], [*self.effects, *other.effects])

    def find(self, kind: type[E]) -> E | None:
        """The first event of a kind."""
        return next((event for event in self.events if isinstance(event, kind)), None)


def nothing() -> Outcome:
    """An empty outcome."""
    return Outcome([], [])
