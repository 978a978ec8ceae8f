"""Tell the receiver that `[quality] on_alarm` names of an alarm, and try again where that fails. Pure.

Law: told at least once, in the order of events, or given up with a reason that is recorded. Nothing else waits for it.
"""

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.reasons import one_line
from apollod.core.schedules import RETRY_MAX_S, backoff_s
from apollod.core.state import State

ATTEMPTS = 8
"""in about two minutes, besides the time that each takes"""


def tell(state: State, now_ns: int) -> list[fx.Effect]:
    """Send the oldest message that was not delivered, until its result is recorded."""
    settings, own = state.daemon.settings, state.quality.telling
    if settings is None or not settings.on_alarm or not own.waiting or not own.retry.is_due(now_ns):
        return []
    message = own.waiting[0]
    return [fx.TellAlarm(message.incident, message.about, message)]


def on_told(state: State, input_: inp.AlarmTold, now_ns: int) -> Outcome:
    """Record the result, and nothing else: the guard does the same whether it could be told or not."""
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
