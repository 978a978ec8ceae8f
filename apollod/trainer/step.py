"""One optimizer step, a pure function of weights, optimizer state, examples, objective, anchors, step number, learning
rate and loss limit.

Nothing else may influence it: no dropout, no global random numbers, no algorithm whose result depends on timing. The
same step gives the same bits in another process; replay after a crash relies on that.

Anchors measure how far the model has moved from its earlier outputs:

    L = L_task + w mean_j KL_j        KL_j: of `context`, of anchor j, in nats a token

Sources: Li and Hoiem, "Learning without Forgetting" (arXiv:1606.09282); Shenfeld, Pari and Agrawal, "RL's Razor"
(arXiv:2509.04259): forgetting follows the KL to the earlier model.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from apollod.core.facts.training import StepTerms
from apollod.core.kernel.composing import composed
from apollod.core.schedules import risen
from apollod.failpoints import failpoint
from apollod.trainer.bind.attach import Attached
from apollod.trainer.objectives.compared_answers import with_zero
from apollod.trainer.objectives.context import CONTEXT
from apollod.trainer.objectives.loss import Metrics, loss_of, losses_of
from apollod.trainer.objectives.objective import SFT, Objective
from apollod.trainer.objectives.policy import unaligned
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
    `anchors`: their mean divergence, times `terms.hold`, is added to the loss in that last backward;
    without them the bits are those of a step without holding. `StepDone.loss` is that of the examples alone.
    `optimizer` has its hooks attached, so the gradient of a single example lives only until its parameter is updated. A
    loss that is not finite, above `terms.loss_limit` (0: no limit) or, if it is the mean of -log p, below `loss_min`,
    writes nothing (`applied` false). `before_write` is called before the first write.
    `terms.again_of`: the step whose random streams to use (0: its own). After an exception the weights may be half
    updated.
    """
    failpoint("trainer.step.begun")
    started = time.perf_counter()
    batch = [with_zero(tokens, terms.zero) for tokens in batch] if terms.zero else batch
    found = _losses(attached, optimizer, batch, step, terms, objective, anchors, loss_min)
    applied = not found.note
    if applied:
        before_write()
        rate = lr * risen(optimizer.applied(), terms.warmup) if terms.warmup else lr
        optimizer.begin(terms.again_of or step, rate, known_as=step)
    report, fingerprint = _written(attached, optimizer, found.rest if applied else None)
    return composed(
        StepDone,
        report,
        step=step,
        applied=applied,
        loss=found.loss if math.isfinite(found.loss) else None,
        tokens=sum(len(tokens.ids) for tokens in batch),
        targets=sum(tokens.targets for tokens in batch),
        fingerprint=fingerprint,
        seconds=time.perf_counter() - started,
        replay=replay,
        note=found.note or _skipped(report.skipped),
        known=found.known,
        held=tuple(found.moved) if applied else (),
        losses=tuple(found.each) if len(batch) > 1 and math.isfinite(found.loss) else (),
        metrics=_mean(found.metrics),
    )


class _Losses(NamedTuple):
    """`loss` of the examples, and of `each` alone; `moved`: the divergence of each anchor; `rest`: the part of their
    sum left for the backward pass that updates; `note`: the reason to write nothing, empty if there is none; `known`:
    that reason is that the model knows the examples; `metrics`: of each example."""

    loss: float
    each: list[float]
    metrics: Metrics
    moved: list[float]
    rest: Tensor
    note: str
    known: bool


def _losses(
    attached: Attached,
    optimizer: NamedOptimizer,
    batch: Sequence[Tokens],
    step: int,
    terms: StepTerms,
    objective: Objective,
    anchors: Sequence[Tokens],
    loss_min: float,
) -> _Losses:
    """Everything in a step before its first write."""
    graphs = Graphs(attached.model) if anchors else None
    metrics = Metrics()
    loss, rest, each = _forward(attached, optimizer, batch, objective, graphs, terms.together, metrics)
    known = objective.token_mean and loss < loss_min  # a low value of any other loss does not show that
    note = _objection(loss, terms.loss_limit)
    note = note or unaligned(_mean(metrics), batch, step)
    note = note or (f"loss {loss:.6g} is below {loss_min:.6g}: it is known" if known else "")
    moved = list[float]()
    if graphs is not None and not note:
        task, apart = rest, graphs.of(lambda: losses_of(attached.model, anchors, optimizer, CONTEXT))
        moved, rest = apart.tolist(), graphs.joined(lambda: task + terms.hold * apart.mean())
        if not all(map(math.isfinite, moved)):
            note = "the divergence of what is held is not finite: nothing was written"
    return _Losses(loss, each, metrics, moved, rest, note, known)


def _written(attached: Attached, optimizer: NamedOptimizer, rest: Tensor | None) -> tuple[StepReport, str]:
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
    graphs: "Graphs | None" = None,
    together: bool = False,
    metrics: Metrics | None = None,
) -> tuple[float, Tensor, list[float]]:
    """The loss, the share of it whose backward pass is left to do, one of `graphs` if given, and the L_i. `metrics` are
    added to.

        L = sum_i w_i L_i / sum_i w_i        w_i the weight that the objective gives example i

    One share for each example, or one for all of them (`together`). Ends early once it is not finite.
    """
    weights = [objective.weight(tokens) for tokens in batch]
    total, each = sum(weights), list[float]()

    def share_of(tokens: Tokens, weight: float) -> Tensor:
        whole = loss_of(attached.model, tokens, optimizer, objective, metrics)
        each.append(whole.item())
        return whole if weight == total else whole * (weight / total)

    def of_all() -> Tensor:
        losses = losses_of(attached.model, batch, optimizer, objective, metrics)
        each.extend(losses.tolist())
        shares = torch.tensor(weights, device=attached.device)
        return (losses * (shares / shares.sum())).sum()

    forwards: list[Callable[[], Tensor]]
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


def _mean(metrics: Metrics) -> dict[str, float]:
    """The mean of each over the examples, of those that are finite: an event holds no other numbers."""
    names = dict.fromkeys(name for one in metrics for name in one)
    found = {name: sum(one[name] for one in metrics) / len(metrics) for name in names}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _skipped(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SKIPPED_SHOWN} more" if len(names) > SKIPPED_SHOWN else ""
    return f"skipped {', '.join(names[:SKIPPED_SHOWN])}{more}"


# --- several graphs for one backward pass, which walks through all of them layer by layer ---------------------------
#
# autograd runs the newest node first. Two forward passes, one after the other, would be walked through one after the
# other: every gradient of the second would wait for its share of the first, and so all of them would exist at once.
# Nodes are numbered in each thread from 0, so each forward pass here runs in a thread of its own. At the beginning of
# each decoder layer its numbers are raised to those that the layer had in the passes before, and once more after the
# last layer, since linear attention makes more nodes for more tokens. A layer's gradients are then complete, and
# dropped, before the backward pass goes on to the layer below, and those of the head before any layer's.
#
# The combination of several graphs needs higher numbers than all of them (`joined`): made in the calling thread, which
# may have made hardly any nodes yet, it would run too late.
#
# A parameter's gradient is the sum of one share per graph. The sum of two shares does not depend on their order, that
# of three does: make two graphs at most.


class Graphs:
    """Forward passes of `model` for one backward pass. Run the one with the most tokens first: only later ones are
    raised."""

    def __init__(self, model: nn.Module) -> None:
        self._layers = [
            layer
            for name, held in model.named_modules()
            if isinstance(held, nn.ModuleList) and name.endswith("layers")
            for layer in held
        ]
        self._begins: list[int] = []
        self._end = 0

    def of(self, forward: Callable[[], Tensor]) -> Tensor:
        """The result of `forward`, with its graph, computed with the calling thread's dispatch mode."""
        mode: AbstractContextManager[object] = _get_current_dispatch_mode() or nullcontext()
        return _in_a_thread(lambda: self._numbered(forward, mode))

    def joined(self, combine: Callable[[], Tensor]) -> Tensor:
        """The result of `combine`, which combines results of `of`."""

        def after_all() -> Tensor:
            _raise_to(self._end)
            return combine()

        return _in_a_thread(after_all)

    def _numbered(self, forward: Callable[[], Tensor], mode: AbstractContextManager[object]) -> Tensor:
        calls = count()

        def begin(*_given: object) -> None:
            if not torch.is_grad_enabled():
                return  # a forward pass without a graph (`loss.large_head`) makes no nodes
            call = next(calls)
            if call == len(self._begins):
                self._begins.append(_next_number())
            _raise_to(self._begins[call])

        hooks = [layer.register_forward_pre_hook(begin) for layer in self._layers]
        hooks += [layer.register_forward_hook(begin) for layer in self._layers[-1:]]
        try:
            with mode:
                return forward()
        finally:
            self._end = max(self._end, _next_number())
            for hook in hooks:
                hook.remove()


def _in_a_thread(make: Callable[[], Tensor]) -> Tensor:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def _raise_to(number: int) -> None:
    """Make nodes, which are dropped at once, until the next one of this thread has this number."""
    leaf = torch.zeros((), requires_grad=True)
    while _next_number() < number:
        leaf.view(())


def _next_number() -> int:
    """Number of the next node that this thread makes."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number
