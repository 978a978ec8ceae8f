"""Inputs: a step completed or failed."""

import msgspec

from apollod.core.kernel.input import Input


class Undoable(msgspec.Struct, frozen=True):
    """Steps that the trainer can take back in memory, for display: `steps`, the last ones; `reason`: why it cannot keep
    any."""

    steps: int
    reason: str = ""


class StepDone(Input, frozen=True, tag="step-done"):
    """A finished step. `applied` false: nothing was written, because the loss is not finite (None), above its limit, or
    so low (`known`) that there is nothing to learn. `held`: the divergence of each anchor that it held, nats a token,
    before its write; empty if nothing was written. `losses`: see `StepCompleted`."""

    step: int
    applied: bool
    loss: float | None
    grad_norm: float
    update_norm: float
    tokens: int
    targets: int
    fingerprint: str
    seconds: float
    skipped_zero: int
    skipped_nonfinite: int
    replay: bool = False
    note: str = ""
    undoable: Undoable | None = None
    known: bool = False
    held: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()


class StepFailed(Input, frozen=True, tag="step-failed"):
    """The step could not run. `out_of_memory`: the next trainer could not run these examples either. `torn`: a part may
    have been written, and the trainer exits; else weights and optimizer are as before, and it stays."""

    step: int
    reason: str
    out_of_memory: bool = False
    torn: bool = True
