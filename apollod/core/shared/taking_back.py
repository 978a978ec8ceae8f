"""Takes back examples that were learned or may have been. Pure; shared by all that take examples back."""

from collections.abc import Mapping

from apollod.core.facts.forgetting import ForgetRequested, Wish
from apollod.core.facts.intake.events import ExampleWithdrawn
from apollod.core.facts.training import all_examples
from apollod.core.kernel.event import Event
from apollod.core.shared.places import Place
from apollod.core.state import State


def taken_back(
    state: State, wishes: Mapping[str, Wish], places: Mapping[str, Place], again: bool = False
) -> list[Event]:
    """Events that take these examples out of the weights, except those in `places`, which a decision still reaches.
    Undone examples are withdrawn; for the others forgetting is requested. `again`: also if it was refused before."""
    own, events = state.forgetting, list[Event]()
    running = state.training.running
    learning = all_examples(running.begun) if running is not None else ()
    known = own.wanted.keys() | (own.under_way.wishes.keys() if own.under_way else set())
    known |= set() if again else own.refused.keys()
    for example, wish in wishes.items():
        if example in places or example in state.intake.withdrawn:
            continue
        if example in state.intake.undone and example not in learning:  # a step that repeats it cannot be stopped
            events.append(ExampleWithdrawn(examples=(example,), by=wish.by, reason=wish.reason))
        elif example not in known:
            events.append(ForgetRequested(examples=(example,), by=wish.by, reason=wish.reason))
    return events
