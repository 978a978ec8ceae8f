"""Starts or refuses rollback requests. Pure; shared by all that request one."""

from typing import Any

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.fixed_bits import NO_KEYS, differing_setting, setting
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.recovery.environment import chosen, differing_choice
from apollod.core.state import State


def request(state: State, to: int, by: str) -> Outcome:
    """Record the request, unless there is one. After a halt the trainer is not trusted with it: another one is
    started."""
    if state.rollback.wanted is not None or state.rollback.under_way is not None:
        return nothing()
    effects: list[fx.Effect] = []
    if state.daemon.halted and state.children.trainer.phase != "absent":
        effects.append(fx.StopChild("trainer", 0.0))
    return Outcome([ev.RollbackRequested(to=to, by=by)], effects)


def begun(state: State, input_: inp.RollbackPlanned) -> ev.RollbackStarted | ev.RollbackRefused | None:
    """The outcome of a plan: start or refusal; None if no request waits for this plan."""
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
        fingerprint = at.fingerprint  # the step at which the journal begins; its result is in the archive
    return composed(ev.RollbackStarted, input_, to=wanted.to, from_step=version, fingerprint=fingerprint)


def _archived(state: State, to: int) -> str:
    """Refuse steps before the journal's beginning, which are in its archive; empty: no objection."""
    begun = state.daemon.continued
    if begun is None or to >= begun.step:
        return ""
    return (
        f"the journal begins at step {begun.step}, what was before is in the archive {begun.archive}; "
        f"`apollod replay --journal {begun.archive} --to {to} --out DIR` builds the weights of step {to}"
    )


def _changed_settings(state: State, plan: inp.RollbackPlanned) -> str:
    """Refuse if steps to be run again were made with other settings or threads; empty: no objection."""
    then, bound = plan.made_with, state.children.bound
    name = differing_setting(then, state.daemon.settings) if plan.replay else None
    choice = differing_choice(plan.ran_on, bound.versions) if plan.replay and bound else None
    if then is not None and name is not None:
        was: Any = setting(then, name)
    elif choice is not None:
        name, was = choice, chosen(plan.ran_on, choice)
    else:
        return ""
    remedy = "name the step of a checkpoint"
    if name not in NO_KEYS:
        remedy = f"set [trainer] {name} back, or {remedy}"
    return (
        f"steps {plan.replay[0].step} to {plan.replay[-1].step} would have to be run again and were made with "
        f"{name} = {was!r}; {remedy}"
    )


def _no_origin(state: State, plan: inp.RollbackPlanned) -> str:
    """Refuse if no checkpoint is old enough and the untrained weights are lost: they can be rebuilt only from the
    deltas of all checkpoints; empty: no objection."""
    if plan.origin or state.recovery.base is not None or not state.checkpoints.removed:
        return ""
    return (
        f"no checkpoint of step {plan.to} or an earlier one is left, and the untrained weights were not kept; "
        "`apollod checkpoint list` shows the steps that can be gone back to"
    )
