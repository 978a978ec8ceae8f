"""Measures how much of a night was missed because the daemon was off or paused, and when it is caught up.

Law: at most one night is caught up, the last one that passed, for the time missed. Catching up begins within CHANCE_NS
after the daemon started or was resumed, while something waits for a night, and ends when nothing does.
"""

from apollod.core.review.events import BY_EVIDENCE
from apollod.core.schedule.events import NightPlanned
from apollod.core.schedule.state import ScheduleState
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State

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


def plan(own: ScheduleState, state: State, planned: NightPlanned, at_ns: int) -> None:
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
