"""Learning hours: bulk examples are learned on arrival, or at night. Decisions, folds and status.

Law: the clock only opens and closes; what waits for the night is defined in `core.activities`. If the clock is put back
in a night, it closes, and opens again in time. A missed night opens late (`missed`).
"""

import msgspec

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.review import BY_EVIDENCE
from apollod.core.facts.schedule import ScheduleState
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State

# --- missed ----------------------------------------------------------------------------------------------------------
# Measures how much of a night was missed because the daemon was off or paused, and when it is caught up.
#
# Law: at most one night is caught up, the last one that passed, for the time missed. Catching up begins within
# CHANCE_NS after the daemon started or was resumed, while something waits for a night, and ends when nothing does.

SHORTEST_NS = 60 * SECOND_NS
"""least time to catch up: less is missed between two ticks, or by a restart"""
CHANCE_NS = 3600 * SECOND_NS
"""time in which the logs of a day are read; later ones belong to the next day, and wait for the next night"""


def waits(state: State) -> bool:
    """True if any example waits for a night."""
    wishes = state.forgetting.wanted.values()
    return bool(state.intake.bulk.waiting) or any(wish.by == BY_EVIDENCE for wish in wishes)


def account(own: ScheduleState, at_ns: int) -> None:
    """Count the time since the last account as used, for the night or for catching up."""
    if not own.since_ns:
        return
    spent = max(0, at_ns - own.since_ns)
    own.since_ns = at_ns
    if own.until_ns:
        own.owed_ns = max(0, own.owed_ns - spent)
    else:
        own.used_ns += spent


def plan(own: ScheduleState, state: State, planned: ev.NightPlanned, at_ns: int) -> None:
    """Take the next night; the one planned before may have passed. A daemon that ran then with nothing to do missed
    nothing, nor did one that did not know these hours."""
    last, same_life = own.last, own.planned is not None
    own.last, own.planned = planned, planned if planned.hours else None
    if last is None or (last.hours, last.zone) != (planned.hours, planned.zone):
        own.owed_ns = 0
    elif last.opens_ns == planned.opens_ns:
        return
    elif last.closes_ns <= at_ns:
        missed = last.closes_ns - max(last.opens_ns, own.known_ns) - own.used_ns
        own.owed_ns = 0 if same_life and not waits(state) else max(0, missed)
        own.chance_ns = at_ns
    own.known_ns, own.used_ns = at_ns, 0


def late_until(state: State, now_ns: int) -> int:
    """Time until which a missed night may be caught up from now on, in nanoseconds since 1970; 0: not now."""
    own, settings = state.schedule, state.daemon.settings
    if settings is None or not settings.schedule.catch_up or state.daemon.paused or own.owed_ns < SHORTEST_NS:
        return 0
    return now_ns + own.owed_ns if waits(state) and now_ns < own.chance_ns + CHANCE_NS else 0


# --- folds of events into the state ----------------------------------------------------------------------------------


def _started(own: ScheduleState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    """Reset: a new life is given its hours anew, and how long the old one ran after its last step is not known."""
    own.planned, own.open, own.since_ns, own.until_ns, own.chance_ns = None, False, 0, 0, at_ns


def _stopped(own: ScheduleState, state: State, e: ev.DaemonStopped, at_ns: int) -> None:
    account(own, at_ns)


def _paused(own: ScheduleState, state: State, e: ev.TrainingPaused, at_ns: int) -> None:
    account(own, at_ns)
    own.since_ns = 0


def _resumed(own: ScheduleState, state: State, e: ev.TrainingResumed, at_ns: int) -> None:
    account(own, at_ns)
    own.since_ns, own.chance_ns = at_ns if own.open else 0, at_ns


def _opened(own: ScheduleState, state: State, e: ev.NightOpened, at_ns: int) -> None:
    own.open, own.steps, own.until_ns = True, 0, e.until_ns
    own.since_ns = 0 if state.daemon.paused else at_ns


def _fold_closed(own: ScheduleState, state: State, e: ev.NightClosed, at_ns: int) -> None:
    account(own, at_ns)
    if own.until_ns and not waits(state):
        own.owed_ns = 0
    own.open, own.since_ns, own.until_ns = False, 0, 0


def _step_completed(own: ScheduleState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    account(own, at_ns)
    if own.open:
        own.steps += 1
        own.unsaved = True


def _saved(own: ScheduleState, state: State, e: ev.CheckpointCommitted, at_ns: int) -> None:
    own.unsaved = own.unsaved and e.step != state.training.version


def _rollback_started(own: ScheduleState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    own.unsaved = False


FOLDS: Folds = {
    ev.DaemonStarted: _started,
    ev.DaemonStopped: _stopped,
    ev.TrainingPaused: _paused,
    ev.TrainingResumed: _resumed,
    ev.NightPlanned: plan,
    ev.NightOpened: _opened,
    ev.NightClosed: _fold_closed,
    ev.StepCompleted: _step_completed,
    ev.CheckpointCommitted: _saved,
    ev.RollbackStarted: _rollback_started,
}


# --- decisions -------------------------------------------------------------------------------------------------------


def _on_planned(state: State, input_: inp.NightPlanned, now_ns: int) -> Outcome:
    """Plan new hours: those of the next day, or of a changed configuration."""
    if input_ == (state.schedule.planned or ev.NightPlanned(0, 0)):
        return nothing()
    return Outcome([*_closed(state), input_], [])


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


HANDLERS: Handlers = {inp.NightPlanned: _on_planned}


# --- status ----------------------------------------------------------------------------------------------------------


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Learning hours of examples that are not urgent. Times are seconds since 1970."""

    nightly: str = ""
    """hours of the day; empty: at any time"""
    zone: str = ""
    """empty: that of this machine"""
    open: bool = True
    """such examples are learned now"""
    late: bool = False
    """a missed night is being caught up"""
    opens_at: float | None = None
    closes_at: float | None = None
    """start and end of the present or next hours; `closes_at` while catching up: its end"""
    steps: int = 0
    """steps of this night, or of the last one"""
    dream: str = "any"
    """when dreams begin: at any time, or at night"""


def status(state: State) -> Schedule:
    """The hours of this night or the next; empty without such hours."""
    own, settings = state.schedule, state.daemon.settings
    if settings is None or not settings.schedule.nightly:
        return Schedule()
    opens, closes = (own.planned.opens_ns, own.until_ns or own.planned.closes_ns) if own.planned else (None, None)
    return composed(
        Schedule, own, settings.schedule, late=bool(own.until_ns),
        opens_at=None if opens is None else opens / SECOND_NS, closes_at=None if closes is None else closes / SECOND_NS,
    )  # fmt: skip
