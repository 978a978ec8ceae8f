"""Opens and closes the night.

Law: the clock only opens and closes; what waits for the night is defined in `core.activities`. If the clock is put back
in a night, it closes, and opens again in time. A missed night opens late (`missed`).
"""

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.schedule.missed import late_until, waits
from apollod.core.state import State


def _on_night_known(state: State, input_: inp.NightKnown, now_ns: int) -> Outcome:
    """Plan new hours: those of the next day, or of a changed configuration."""
    known = ev.NightPlanned(input_.opens_ns, input_.closes_ns, input_.hours, input_.zone)
    if known == (state.schedule.planned or ev.NightPlanned(0, 0)):
        return nothing()
    return Outcome([*_closed(state), known], [])


def advance(state: State, now_ns: int) -> Outcome:
    """Open or close the night, if it is time."""
    own, planned = state.schedule, state.schedule.planned
    waiting = state.intake.pending
    if planned is None:
        return Outcome(_closed(state), [])
    if planned.opens_ns <= now_ns < planned.closes_ns:
        opened = own.open and not own.until_ns
        return nothing() if opened else Outcome([*_closed(state), ev.NightOpened(waiting=waiting)], [])
    if own.open:
        return nothing() if _goes_on(state, now_ns) else Outcome(_closed(state), [])
    late_ns = late_until(state, now_ns)
    if not late_ns or now_ns >= planned.closes_ns:  # the planned night passed; the next one follows
        return nothing()
    return Outcome([ev.NightOpened(waiting=waiting, until_ns=min(late_ns, planned.opens_ns))], [])


def _goes_on(state: State, now_ns: int) -> bool:
    """True if a night is still being caught up. Not if the clock was put back meanwhile."""
    own = state.schedule
    busy = waits(state) or state.training.running is not None or state.forgetting.under_way is not None
    return busy and own.until_ns - own.owed_ns <= now_ns < own.until_ns


def _closed(state: State) -> list[ev.Event]:
    schedule = state.schedule
    return [ev.NightClosed(steps=schedule.steps, waiting=state.intake.pending)] if schedule.open else []


HANDLERS: Handlers = {inp.NightKnown: _on_night_known}
