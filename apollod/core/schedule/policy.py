"""When the night begins and ends.

Law: the clock only opens and closes; what that blocks is an obstacle in `core.activities`. A clock that is put back in
a night closes it, and it opens again in time.
"""

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.state import State


def _on_night_known(state: State, input_: inp.NightKnown, now_ns: int) -> Outcome:
    """Other hours than those that are planned: of the next day, or of another configuration."""
    known = ev.NightPlanned(input_.opens_ns, input_.closes_ns, input_.hours, input_.zone)
    if known == (state.schedule.planned or ev.NightPlanned(0, 0)):
        return nothing()
    return Outcome([*_closed(state), known], [])


def advance(state: State, now_ns: int) -> Outcome:
    """Open or close, if it is time."""
    planned = state.schedule.planned
    night = planned is not None and planned.opens_ns <= now_ns < planned.closes_ns
    if night and not state.schedule.open:
        return Outcome([ev.NightOpened(waiting=state.intake.pending)], [])
    return nothing() if night else Outcome(_closed(state), [])


def _closed(state: State) -> list[ev.Event]:
    schedule = state.schedule
    return [ev.NightClosed(steps=schedule.steps, waiting=state.intake.pending)] if schedule.open else []


HANDLERS: Handlers = {inp.NightKnown: _on_night_known}
