"""Rollbacks to the weights of an earlier step, on the running server. Decisions, folds and status.

A request (`rollback.requested`) keeps new steps from beginning; when none runs, the way back is planned from the
journal. From `rollback.started` on the earlier step is valid: the rest is the recovery used after every crash, so a
crash in the middle needs no special handling. The trainer may take a shorter way if it still holds the last steps in
memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.recovery import chosen, differing_choice
from apollod.core.facts.rollback import RollbackState
from apollod.core.fixed_bits import NO_KEYS, differing_setting, setting
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules.recovery import restore_from
from apollod.core.state import State

# --- way back --------------------------------------------------------------------------------------------------------
# Finds the way from one step back to an earlier one: the steps from which its weights are rebuilt.

T = TypeVar("T")

UNDONE_MAX = 10_000
"""most steps in one rollback: all of them are in one event"""

_TAKEN_BACK = (
    "step {version} does not build on step {to}, which was taken back; `apollod replay --to {to} --out DIR` has "
    "its weights"
)


class NotRead(Exception):
    """The journal has to be read further back: `step` is missing."""

    def __init__(self, step: int) -> None:
        super().__init__(f"step {step}")
        self.step = step


def way_back(
    started: Mapping[int, ev.StepStarted],
    completed: Mapping[int, ev.StepCompleted],
    settings_of: Callable[[int], ev.Settings],
    bound_of: Callable[[int], ev.TrainerBound | None],
    to: int,
    version: int,
    checkpoints: Mapping[int, str],
) -> inp.RollbackPlanned:
    """The way from version `version` to step `to`, by the nearest of `checkpoints` (path by step) at or before it.

    `started`, `completed`: steps by number; `settings_of`, `bound_of`: the settings and the trainer's binding in force
    when a step was done. Raises NotRead if a step is missing.
    """
    if to == version:
        return _refused(to, version, f"step {to} is what is served")
    if to < 0:
        return _refused(to, version, f"there is no step {to}")
    if to > version:
        _of(completed, to)
        return _refused(to, version, _TAKEN_BACK.format(version=version, to=to))
    undone, at = _steps_back(completed, version, lambda step: step <= to)
    if len(undone) > UNDONE_MAX:
        return _refused(
            to, version, f"more than {UNDONE_MAX} steps; start anew from `apollod replay --to {to} --out DIR`"
        )
    if at != to:
        return _refused(to, version, _TAKEN_BACK.format(version=version, to=to))
    to_replay, base = _steps_back(completed, to, lambda step: step in checkpoints or step <= 0)
    if len(to_replay) > UNDONE_MAX:
        return _refused(
            to, version, f"the nearest checkpoint is more than {UNDONE_MAX} steps before it; name the step of one"
        )
    replay = [
        ev.RecordedStep.of(_of(started, done.step), done, bound.products if (bound := bound_of(done.step)) else "bf16")
        for done in to_replay
    ]
    made_with = [settings_of(done.step) for done in to_replay]
    made_on = [bound.versions if (bound := bound_of(done.step)) else {} for done in to_replay]
    if name := differing(made_with, made_on):
        reason = f"steps after the checkpoint at {base} were made with several {name}; name the step of a checkpoint"
        return _refused(to, version, reason)
    return inp.RollbackPlanned(
        to=to, version=version, fingerprint=completed[to].fingerprint if to in completed else "",
        origin=checkpoints.get(base, ""),
        replay=tuple(reversed(replay)), made_with=made_with[0] if made_with else None,
        ran_on=dict(made_on[0]) if made_on else {},
        undone=tuple(done.step for done in undone),
        examples=tuple(example for done in undone if done.applied for example in ev.all_examples(done)),
    )  # fmt: skip


def _steps_back(
    completed: Mapping[int, ev.StepCompleted], step: int, there: Callable[[int], bool]
) -> tuple[list[ev.StepCompleted], int]:
    """Go back from a step along its parents until `there` is true; return the steps passed, newest first, and the step
    reached. Stops after more than UNDONE_MAX steps."""
    passed: list[ev.StepCompleted] = []
    while not there(step) and len(passed) <= UNDONE_MAX:
        passed.append(_of(completed, step))
        step = passed[-1].parent
    return passed, step


def differing(made_with: Sequence[ev.Settings], made_on: Sequence[Mapping[str, str]]) -> str | None:
    """First setting or choice that differs among steps to be replayed together; None if none does."""
    settings = (differing_setting(one, made_with[0]) for one in made_with)
    choices = (differing_choice(one, made_on[0]) for one in made_on)
    return next((name for name in (*settings, *choices) if name), None)


def _of(steps: Mapping[int, T], step: int) -> T:
    if step not in steps:
        raise NotRead(step)
    return steps[step]


def _refused(to: int, version: int, reason: str) -> inp.RollbackPlanned:
    return inp.RollbackPlanned(to=to, version=version, error=reason)


# --- wishes ----------------------------------------------------------------------------------------------------------
# Starts or refuses rollback requests. Pure; shared by all that request one.


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
        or _not_kept(state, input_)
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


def _not_kept(state: State, plan: inp.RollbackPlanned) -> str:
    """Refuse if an update by an outside trainer would have to be written again whose tensors are gone; empty: no
    objection."""
    gone = next((one.step for one in plan.replay if one.step in state.updates.unkept), None)
    if gone is None:
        return ""
    return (
        f"step {gone} would have to be run again and is an update by an outside trainer, whose tensors were not kept; "
        "name the step of a checkpoint, or one before it"
    )


# --- folds of events into the state ----------------------------------------------------------------------------------


def _requested(own: RollbackState, state: State, e: ev.RollbackRequested, at_ns: int) -> None:
    own.wanted = e


def _fold_refused(own: RollbackState, state: State, e: ev.RollbackRefused, at_ns: int) -> None:
    own.wanted = None


def _started(own: RollbackState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    own.wanted, own.under_way, own.started_ns = None, e, at_ns


def _completed(own: RollbackState, state: State, e: ev.RollbackCompleted, at_ns: int) -> None:
    own.under_way = None


FOLDS: Folds = {
    ev.RollbackRequested: _requested,
    ev.RollbackRefused: _fold_refused,
    ev.RollbackStarted: _started,
    ev.RollbackCompleted: _completed,
}


# --- decisions -------------------------------------------------------------------------------------------------------


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


# --- status ----------------------------------------------------------------------------------------------------------


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """The requested rollback, or the one under way."""

    to: int
    from_: int = msgspec.field(name="from")
    state: str
    """`requested` or `started`"""


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that a rollback can undo at once, in memory."""

    steps: int | UnsetType | None = UNSET
    """number of last steps; a rollback further back reads a checkpoint and runs steps again. null without a trainer"""
    reason: str = ""
    """why none can ever be undone, such as too small a `[checkpoint] undo_bytes`"""
    bytes: int | None = None
    """host memory of the trainer for it; null without a trainer"""


def status(state: State) -> Rollback | None:
    """The rollback under way, else the requested one."""
    wanted, back = state.rollback.wanted, state.rollback.under_way
    if back is not None:
        return Rollback(to=back.to, from_=back.from_step, state="started")
    return Rollback(to=wanted.to, from_=state.training.version, state="requested") if wanted is not None else None


def undo(told: inp.Undoable | None, given: int | None) -> Undo:
    """The trainer's last report, None before it was attached; `given`: host memory that it was given for it."""
    return Undo(steps=None) if told is None else composed(Undo, told, bytes=given)
