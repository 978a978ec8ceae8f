"""Rolls back to the weights of an earlier step, on the running server.

A request (`rollback.requested`) keeps new steps from beginning; when none runs, the way back is planned from the
journal. From `rollback.started` on the earlier step is valid: the rest is the recovery used after every crash, so a
crash in the middle needs no special handling. The trainer may take a shorter way if it still holds the last steps in
memory.
"""

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.recovery.restoring import restore_from
from apollod.core.rollback.wishes import begun, request
from apollod.core.state import State


def advance(state: State, now_ns: int) -> Outcome:
    """Plan the way back once no step, no comparison and no recovery is under way."""
    wanted, running = state.rollback.wanted, state.training.running
    if wanted is None or blocked(Activity.ROLLBACK, state):
        return nothing()
    if running is not None:  # its trainer died, and the next one starts after the rollback: the step gives way
        failed = ev.StepFailed(
            step=running.step, example=running.examples[0], examples=running.examples, attempts=0, apart=True,
            reason=f"a rollback to step {wanted.to} came before it was done",
        )  # fmt: skip
        return Outcome([failed], [])
    checkpoints = {c.step: c.path for c in state.checkpoints.committed}
    return Outcome([], [fx.PlanRollback(wanted.to, state.training.version, checkpoints)])


def _on_requested(state: State, input_: inp.RollbackRequested, now_ns: int) -> Outcome:
    return request(state, input_.to, input_.by)


def _on_planned(state: State, input_: inp.RollbackPlanned, now_ns: int) -> Outcome:
    """Start the rollback, or refuse it with the reason."""
    event = begun(state, input_)
    if event is None:
        return nothing()
    if isinstance(event, ev.RollbackRefused) or state.children.trainer.phase != "ready":
        return Outcome([event], [])
    restore = restore_from(state, state.checkpoints.at(input_.origin))
    back = msgspec.structs.replace(restore, target=event.to, target_fingerprint=event.fingerprint)
    return Outcome([event], [back])


HANDLERS: Handlers = {inp.RollbackRequested: _on_requested, inp.RollbackPlanned: _on_planned}
