"""One optimizer step, a pure function of weights, optimizer state, examples, objective, what is held, step number,
learning rate and loss limit.

Nothing else may have a say: no dropout, no global random numbers, no algorithm whose result depends on timing. The
same step gives the same bits in another process; replay after a crash rests on that.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

from apollod.failpoints import failpoint
from apollod.trainer.bind.attach import Attached
from apollod.trainer.objectives.graphs import Graphs
from apollod.trainer.objectives.held import divergences
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.sft import SFT
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.step_account import StepReport
from apollod.wire.messages import StepDone

SKIPPED_SHOWN = 3  # names of skipped parameters in a step's note


def be_deterministic() -> None:
    """Make torch raise where an operation has no deterministic algorithm. For the whole process, before any step."""
    torch.use_deterministic_algorithms(True)
    # The switch also fills every new tensor with NaN, to expose reads of uninitialised memory, which costs bandwidth.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def run_step(
    attached: Attached,
    optimizer: NamedOptimizer,
    batch: Sequence[Tokens],
    step: int,
    lr: float,
    loss_limit: float = 0.0,
    loss_min: float = 0.0,
    replay: bool = False,
    before_write: Callable[[], None] = lambda: None,
    objective: Objective = SFT,
    again_of: int = 0,
    held: Sequence[Tokens] = (),
    hold: float = 0.0,
) -> StepDone:
    """Learn the examples of `batch` together by `objective`: forward and backward of each, the update inside the last
    backward, fingerprint.

    `held`: anchors, whose mean divergence, times `hold`, is added to the loss in that last backward (`divergences`);
    without them the bits are those of a step that holds nothing. `StepDone.loss` is that of the examples alone.
    `optimizer` has its hooks attached, so the gradient of a single example lives only until its parameter is updated;
    with several, the sums of all gradients live until the last of them. A loss that is not finite, above
    `loss_limit` (0: there is none) or, where it is the mean of -log p, below `loss_min`, writes nothing (`applied`
    false). `before_write` is called before the first write.
    `again_of`: the step whose random streams it takes (0: its own). An exception out of here may leave the weights half
    updated.
    """
    failpoint("trainer.step.begun")
    started = time.perf_counter()
    graphs = Graphs(attached.model) if held else None
    loss, last = _forward(attached, optimizer, batch, objective, graphs)
    known = objective.token_mean and loss < loss_min  # of any other loss a low value does not say that
    note = _objection(loss, loss_limit) or (f"loss {loss:.6g} is below {loss_min:.6g}: it is known" if known else "")
    moved: list[float] = []
    if graphs is not None and not note:
        found = graphs.of(lambda: divergences(attached.model, held, optimizer))
        moved, last = found.tolist(), last + hold * found.mean()
        note = (
            ""
            if all(map(math.isfinite, moved))
            else "the divergence of what is held is not finite: nothing was written"
        )
    applied = not note
    report = StepReport(0, 0, 0, 0.0, 0.0, [])
    taken: list[Callable[[], str]] = []

    def take_fingerprint() -> None:
        taken.append(attached.weights.take_fingerprint())

    if applied:
        before_write()
        optimizer.begin(again_of or step, lr, known_as=step)
        last.backward()  # type: ignore[no-untyped-call]
        failpoint("trainer.step.updated")
        report = optimizer.finish(take_fingerprint)
        note = _skipped(report.skipped)
    else:
        optimizer.zero_grad()
        take_fingerprint()
    if attached.device.type == "cuda":
        torch.cuda.synchronize(attached.device)  # the engine may read from here on
    fingerprint = taken[0]()
    if optimizer.undo is not None:
        optimizer.undo.end(fingerprint)
    return StepDone(
        step=step,
        applied=applied,
        loss=loss if math.isfinite(loss) else None,
        grad_norm=report.grad_norm,
        update_norm=report.update_norm,
        tokens=sum(len(tokens.ids) for tokens in batch),
        targets=sum(tokens.targets for tokens in batch),
        fingerprint=fingerprint,
        seconds=time.perf_counter() - started,
        skipped_zero=report.skipped_zero,
        skipped_nonfinite=report.skipped_nonfinite,
        replay=replay,
        note=note,
        known=known,
        held=tuple(moved) if applied else (),
    )


def _forward(
    attached: Attached,
    optimizer: NamedOptimizer,
    batch: Sequence[Tokens],
    objective: Objective,
    graphs: Graphs | None = None,
) -> tuple[float, torch.Tensor]:
    """The loss, and the share of it whose backward pass is left to do, one of `graphs` if there are others.

        L = sum_i w_i L_i / sum_i w_i        w_i the weight that the objective gives example i
    Ends early where it is not finite any more.
    """
    weights = [objective.weight(tokens) for tokens in batch]
    total = sum(weights)
    loss = 0.0
    for index, (tokens, weight) in enumerate(zip(batch, weights, strict=True)):
        forward = partial(loss_of, attached.model, tokens, optimizer, objective)
        share = forward() if graphs is None or index < len(batch) - 1 else graphs.of(forward)
        if weight != total:
            share = share * (weight / total)
        loss += share.item()
        if index == len(batch) - 1 or not math.isfinite(loss):
            break
        with optimizer.accumulating():
            share.backward()  # type: ignore[no-untyped-call]
    return loss, share


def _objection(loss: float, limit: float) -> str:
    """Why nothing may be written, if so. Asked before the first write."""
    if not math.isfinite(loss):
        return "loss is not finite: nothing was written"
    if limit and loss > limit:
        return f"loss {loss:.6g} is above the limit {limit:.6g}: nothing was written"
    return ""


def _skipped(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SKIPPED_SHOWN} more" if len(names) > SKIPPED_SHOWN else ""
    return f"skipped {', '.join(names[:SKIPPED_SHOWN])}{more}"
