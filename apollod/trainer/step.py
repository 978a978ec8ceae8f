"""One optimizer step, a pure function of weights, optimizer state, examples, objective, anchors, step number, learning
rate and loss limit.

Nothing else may influence it: no dropout, no global random numbers, no algorithm whose result depends on timing. The
same step gives the same bits in another process; replay after a crash relies on that.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from apollod.core.training.terms import StepTerms
from apollod.failpoints import failpoint
from apollod.trainer.bind.attach import Attached
from apollod.trainer.objectives.graphs import Graphs
from apollod.trainer.objectives.held import divergences
from apollod.trainer.objectives.loss import loss_of, losses_of
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.sft import SFT
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.open_step import StepReport
from apollod.wire.messages import StepDone

PLAIN = StepTerms()
"""no limit, no anchors"""
SKIPPED_SHOWN = 3  # names of skipped parameters in a step's note


def be_deterministic() -> None:
    """Make torch raise for operations without a deterministic algorithm. For the whole process, before any step."""
    torch.use_deterministic_algorithms(True)
    # The switch also fills every new tensor with NaN, to expose reads of uninitialised memory, which costs bandwidth.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def run_step(
    attached: Attached,
    optimizer: NamedOptimizer,
    batch: Sequence[Tokens],
    step: int,
    lr: float,
    terms: StepTerms = PLAIN,
    objective: Objective = SFT,
    anchors: Sequence[Tokens] = (),
    loss_min: float = 0.0,
    replay: bool = False,
    before_write: Callable[[], None] = lambda: None,
) -> StepDone:
    """Learn the examples of `batch` in one step by `objective`: forward and backward of each, the update inside the
    last backward, fingerprint.

    `terms.together`: one forward and one backward for all of them, as one batch, so that no gradient lives longer than
    with a single example; else, with several, the sums of all gradients live until the last of them.
    `anchors`: their mean divergence, times `terms.hold`, is added to the loss in that last backward (`divergences`);
    without them the bits are those of a step without holding. `StepDone.loss` is that of the examples alone.
    `optimizer` has its hooks attached, so the gradient of a single example lives only until its parameter is updated. A
    loss that is not finite, above `terms.loss_limit` (0: no limit) or, if it is the mean of -log p, below `loss_min`,
    writes nothing (`applied` false). `before_write` is called before the first write.
    `terms.again_of`: the step whose random streams to use (0: its own). After an exception the weights may be half
    updated.
    """
    failpoint("trainer.step.begun")
    started = time.perf_counter()
    found = _losses(attached, optimizer, batch, terms, objective, anchors, loss_min)
    applied = not found.note
    if applied:
        before_write()
        optimizer.begin(terms.again_of or step, lr, known_as=step)
    report, fingerprint = _written(attached, optimizer, found.rest if applied else None)
    return StepDone(
        step=step,
        applied=applied,
        loss=found.loss if math.isfinite(found.loss) else None,
        grad_norm=report.grad_norm,
        update_norm=report.update_norm,
        tokens=sum(len(tokens.ids) for tokens in batch),
        targets=sum(tokens.targets for tokens in batch),
        fingerprint=fingerprint,
        seconds=time.perf_counter() - started,
        skipped_zero=report.skipped_zero,
        skipped_nonfinite=report.skipped_nonfinite,
        replay=replay,
        note=found.note or _skipped(report.skipped),
        known=found.known,
        held=tuple(found.moved) if applied else (),
        losses=tuple(found.each) if len(batch) > 1 and math.isfinite(found.loss) else (),
    )


class _Losses(NamedTuple):
    """`loss` of the examples, and of `each` alone; `moved`: the divergence of each anchor; `rest`: the part of their
    sum left for the backward pass that updates; `note`: the reason to write nothing, empty if there is none; `known`:
    that reason is that the model knows the examples."""

    loss: float
    each: list[float]
    moved: list[float]
    rest: torch.Tensor
    note: str
    known: bool


def _losses(
    attached: Attached,
    optimizer: NamedOptimizer,
    batch: Sequence[Tokens],
    terms: StepTerms,
    objective: Objective,
    anchors: Sequence[Tokens],
    loss_min: float,
) -> _Losses:
    """Everything in a step before its first write."""
    graphs = Graphs(attached.model) if anchors else None
    loss, rest, each = _forward(attached, optimizer, batch, objective, graphs, terms.together)
    known = objective.token_mean and loss < loss_min  # a low value of any other loss does not show that
    note = _objection(loss, terms.loss_limit)
    note = note or (f"loss {loss:.6g} is below {loss_min:.6g}: it is known" if known else "")
    moved = list[float]()
    if graphs is not None and not note:
        task, apart = rest, graphs.of(lambda: divergences(attached.model, anchors, optimizer))
        moved, rest = apart.tolist(), graphs.joined(lambda: task + terms.hold * apart.mean())
        if not all(map(math.isfinite, moved)):
            note = "the divergence of what is held is not finite: nothing was written"
    return _Losses(loss, each, moved, rest, note, known)


def _written(attached: Attached, optimizer: NamedOptimizer, rest: torch.Tensor | None) -> tuple[StepReport, str]:
    """Run the backward pass of `rest`, with its updates, and take the fingerprint. None: nothing is written."""
    taken, report = list[Callable[[], str]](), StepReport(0, 0, 0, 0.0, 0.0, [])

    def take_fingerprint() -> None:
        taken.append(attached.weights.take_fingerprint())

    if rest is not None:
        rest.backward()  # type: ignore[no-untyped-call]
        failpoint("trainer.step.updated")
        report = optimizer.finish(take_fingerprint)
    else:
        optimizer.zero_grad()
        take_fingerprint()
    if attached.device.type == "cuda":
        torch.cuda.synchronize(attached.device)  # the engine may read from here on
    fingerprint = taken[0]()
    if optimizer.undo is not None:
        optimizer.undo.end(fingerprint)
    return report, fingerprint


def _forward(
    attached: Attached,
    optimizer: NamedOptimizer,
    batch: Sequence[Tokens],
    objective: Objective,
    graphs: Graphs | None = None,
    together: bool = False,
) -> tuple[float, torch.Tensor, list[float]]:
    """The loss, the share of it whose backward pass is left to do, one of `graphs` if given, and the L_i.

        L = sum_i w_i L_i / sum_i w_i        w_i the weight that the objective gives example i

    One share for each example, or one for all of them (`together`). Ends early once it is not finite.
    """
    weights = [objective.weight(tokens) for tokens in batch]
    total, each = sum(weights), list[float]()

    def share_of(tokens: Tokens, weight: float) -> torch.Tensor:
        whole = loss_of(attached.model, tokens, optimizer, objective)
        each.append(whole.item())
        return whole if weight == total else whole * (weight / total)

    def of_all() -> torch.Tensor:
        losses = losses_of(attached.model, batch, optimizer, objective)
        each.extend(losses.tolist())
        shares = torch.tensor(weights, device=attached.device)
        return (losses * (shares / shares.sum())).sum()

    forwards: list[Callable[[], torch.Tensor]]
    forwards = [of_all] if together else [partial(share_of, *one) for one in zip(batch, weights, strict=True)]
    loss = 0.0
    for forward in forwards[:-1]:
        share = forward()
        loss += share.item()
        if not math.isfinite(loss):
            return loss, share, each
        with optimizer.accumulating():
            share.backward()  # type: ignore[no-untyped-call]
    share = forwards[-1]() if graphs is None else graphs.of(forwards[-1])
    return loss + share.item(), share, each


def _objection(loss: float, limit: float) -> str:
    """The reason to write nothing, or "". Called before the first write."""
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
