"""Delivers alarm notifications to `[quality] on_alarm`: when to send, when to retry, when to give up. Pure.

Law: each is delivered at least once, in the order of events, or given up with a recorded reason. Nothing else waits for
it.
"""

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.reasons import one_line
from apollod.core.schedules import RETRY_MAX_S, backoff_s
from apollod.core.state import State

ATTEMPTS = 8
"""attempts, within about two minutes besides their own duration"""


def tell(state: State, now_ns: int) -> list[fx.Effect]:
    """Send the oldest undelivered message, until its result is recorded."""
    settings, own = state.daemon.settings, state.quality.telling
    if settings is None or not settings.on_alarm or not own.waiting or not own.retry.is_due(now_ns):
        return []
    message = own.waiting[0]
    return [fx.TellAlarm(message.incident, message.about, message)]


def on_told(state: State, input_: inp.AlarmTold, now_ns: int) -> Outcome:
    """Record the result only: the guard does not depend on delivery."""
    own = state.quality.telling
    if not own.waiting or (own.waiting[0].incident, own.waiting[0].about) != (input_.incident, input_.about):
        return nothing()
    attempt = own.retry.failures + 1
    gives_up = bool(input_.error) and attempt >= ATTEMPTS
    retry_s = backoff_s(attempt, RETRY_MAX_S) if input_.error and not gives_up else 0.0
    told = ev.QualityTold(
        incident=input_.incident, about=input_.about, ok=not input_.error, reason=one_line(input_.error),
        attempt=attempt, gives_up=gives_up, retry_s=retry_s,
    )  # fmt: skip
    return Outcome([told], [])
