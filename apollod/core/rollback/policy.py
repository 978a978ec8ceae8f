"""Back to the weights of an earlier step, on the running server.

A wish (`rollback.requested`) keeps new steps from beginning; when none runs, the journal is read for a way back. From
`rollback.started` on the truth is the earlier step: what follows is the recovery that every crash needs anyway, so a
crash in the middle needs nothing of its own. The trainer may take a shorter way where it still holds the last steps in
memory.
"""

from typing import Any

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.recovery.environment import chosen, differing_choice
from apollod.core.recovery.restoring import restore_from
from apollod.core.settings import differing_setting, setting
from apollod.core.state import State


def advance(state: State, now_ns: int) -> Outcome:
    """Look for the way back once no step, no comparison and no recovery is under way."""
    wanted, running = state.rollback.wanted, state.training.running
    if wanted is None or blocked(Activity.ROLLBACK, state):
        return nothing()
    if running is not None:  # its trainer died, and none is started before the rollback: the step gives way
        failed = ev.StepFailed(
            step=running.step, example=running.examples[0], examples=running.examples, attempts=0, apart=True,
            reason=f"a rollback to step {wanted.to} came before it was done",
        )  # fmt: skip
        return Outcome([failed], [])
    checkpoints = {c.step: c.path for c in state.checkpoints.committed}
    return Outcome([], [fx.PlanRollback(wanted.to, state.training.version, checkpoints)])


def _on_requested(state: State, input_: inp.RollbackRequested, now_ns: int) -> Outcome:
    return request(state, input_.to, input_.by)


def request(state: State, to: int, by: str) -> Outcome:
    """Remember the wish, unless there is one. A trainer that training halted over is not to be trusted with it:
    another one is started."""
    if state.rollback.wanted is not None or state.rollback.under_way is not None:
        return nothing()
    effects: list[fx.Effect] = []
    if state.daemon.halted and state.children.trainer.phase != "absent":
        effects.append(fx.StopChild("trainer", 0.0))
    return Outcome([ev.RollbackRequested(to=to, by=by)], effects)


def _on_planned(state: State, input_: inp.RollbackPlanned, now_ns: int) -> Outcome:
    """Go, or say why there is no way."""
    event = begun(state, input_)
    if event is None:
        return nothing()
    if isinstance(event, ev.RollbackRefused) or state.children.trainer.phase != "ready":
        return Outcome([event], [])
    restore = restore_from(state, state.checkpoints.at(input_.origin))
    back = msgspec.structs.replace(restore, target=event.to, target_fingerprint=event.fingerprint)
    return Outcome([event], [back])


def begun(state: State, input_: inp.RollbackPlanned) -> ev.RollbackStarted | ev.RollbackRefused | None:
    """What follows from a plan: the beginning, why there is none, or nothing, since nobody waits for this plan."""
    wanted, version = state.rollback.wanted, state.training.version
    if wanted is None or (input_.to, input_.version) != (wanted.to, version) or state.training.running is not None:
        return None
    if (
        error := _archived(state, wanted.to)
        or input_.error
        or _changed_settings(state, input_)
        or _no_origin(state, input_)
    ):
        return ev.RollbackRefused(to=wanted.to, reason=error)
    fingerprint = input_.fingerprint if wanted.to else state.recovery.base_fingerprint
    if not fingerprint and (at := state.checkpoints.at(input_.origin)) is not None:
        fingerprint = at.fingerprint  # of the step at which the journal begins; its result is in the archive
    return ev.RollbackStarted(
        to=wanted.to, from_step=version, fingerprint=fingerprint, origin=input_.origin, replay=input_.replay,
        undone=input_.undone, examples=input_.examples, ran_on=input_.ran_on,
    )  # fmt: skip


def _archived(state: State, to: int) -> str:
    """What leads to steps before the journal begins is not in it."""
    begun = state.daemon.continued
    if begun is None or to >= begun.step:
        return ""
    return (
        f"the journal begins at step {begun.step}, what was before is in the archive {begun.archive}; "
        f"`apollod replay --journal {begun.archive} --to {to} --out DIR` builds the weights of step {to}"
    )


def _changed_settings(state: State, plan: inp.RollbackPlanned) -> str:
    """Steps that have to be run again need the settings that they were made with, and as many threads."""
    then, bound = plan.made_with, state.children.bound
    name = differing_setting(then, state.daemon.settings) if plan.replay else None
    choice = differing_choice(plan.ran_on, bound.versions) if plan.replay and bound else None
    if then is not None and name is not None:
        was: Any = setting(then, name)
    elif choice is not None:
        name, was = choice, chosen(plan.ran_on, choice)
    else:
        return ""
    return (
        f"steps {plan.replay[0].step} to {plan.replay[-1].step} would have to be run again and were made with "
        f"{name} = {was!r}; set [trainer] {name} back, or name the step of a checkpoint"
    )


def _no_origin(state: State, plan: inp.RollbackPlanned) -> str:
    """Where no checkpoint is old enough, the way begins at the untrained weights. Unless they were kept, only the
    deltas of all checkpoints since lead there."""
    if plan.origin or state.recovery.base is not None or not state.checkpoints.removed:
        return ""
    return (
        f"no checkpoint of step {plan.to} or an earlier one is left, and the untrained weights were not kept; "
        "`apollod checkpoint list` shows the steps that can be gone back to"
    )


HANDLERS: Handlers = {inp.RollbackRequested: _on_requested, inp.RollbackPlanned: _on_planned}
