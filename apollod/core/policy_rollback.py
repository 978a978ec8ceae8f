"""Back to the weights of an earlier step, on the running server.

A wish (`rollback.requested`) keeps new steps from beginning; when none runs, the journal is read for a way back. From
`rollback.started` on the truth is the earlier step: what follows is the recovery that every crash needs anyway, so a crash in
the middle needs nothing of its own. The trainer may take a shorter way where it still holds the last steps in memory.
"""

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.policy_recovery import differing_setting, restore_from
from apollod.core.policy_train import encode_effect
from apollod.core.state import State

Outcome = tuple[list[ev.Event], list[fx.Effect]]


def on_rollback_requested(state: State, input_: inp.RollbackRequested, now_ns: int) -> Outcome:
    """Remember the wish. A trainer that training halted over is not to be trusted with it: another one is started."""
    if state.rollback_wanted is not None or state.rolling_back is not None:
        return [], []
    effects: list[fx.Effect] = []
    if state.halted and state.trainer.phase != "absent":
        effects.append(fx.StopChild("trainer", 0.0))
    return [ev.RollbackRequested(to=input_.to, by=input_.by)], effects


def advance_rollback(state: State) -> Outcome:
    """Look for the way back once no step, no comparison and no recovery is under way."""
    wanted, running = state.rollback_wanted, state.running
    if wanted is None or state.trainer.phase == "spawned" or state.aligning is not None:
        return [], []
    if running is not None and state.trainer.phase == "ready":
        return [], []
    if running is not None:  # its trainer died, and none is started before the rollback: the step gives way
        failed = ev.StepFailed(
            step=running.step, example=running.examples[0], reason=f"a rollback to step {wanted.to} came before it was done",
            attempts=0, examples=running.examples, apart=True,
        )  # fmt: skip
        return [failed], []
    return [], [fx.PlanRollback(wanted.to, state.version, {c.step: c.path for c in state.checkpoints})]


def on_rollback_planned(state: State, input_: inp.RollbackPlanned, now_ns: int) -> Outcome:
    """Go, or say why there is no way."""
    wanted = state.rollback_wanted
    if wanted is None or (input_.to, input_.version) != (wanted.to, state.version) or state.running is not None:
        return [], []
    error = input_.error
    if not error and input_.replay and (name := differing_setting(input_.made_with, state.settings)):
        error = (
            f"steps {input_.replay[0].step} to {input_.replay[-1].step} would have to be run again and were made with "
            f"{name} = {getattr(input_.made_with, name)!r}; set [trainer] {name} back, or name the step of a checkpoint"
        )
    if error:
        return [ev.RollbackRefused(to=wanted.to, reason=error)], []
    fingerprint = input_.fingerprint if wanted.to else state.base_fingerprint
    started = ev.RollbackStarted(
        to=wanted.to, from_step=state.version, fingerprint=fingerprint, origin=input_.origin, replay=input_.replay,
        undone=input_.undone, examples=input_.examples,
    )  # fmt: skip
    if state.trainer.phase != "ready":
        return [started], []
    restore = restore_from(state, state.checkpoint_at(input_.origin))
    return [started], [msgspec.structs.replace(restore, target=wanted.to, target_fingerprint=fingerprint)]


def on_relearn_requested(state: State, input_: inp.RelearnRequested, now_ns: int) -> Outcome:
    """Back into the queue, at its end; others than those that were taken back are left alone."""
    wanted = {example: tier for example, tier in input_.examples if example in state.undone}
    events: list[ev.Event] = [ev.ExampleRequeued(example=example, tier=tier, by=input_.by) for example, tier in wanted.items()]
    tokenising = bool(state.untokenised)
    return events, [] if tokenising or not events or state.trainer.phase != "ready" else encode_effect(wanted)
