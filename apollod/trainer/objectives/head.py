"""Log-probabilities of given tokens over a large vocabulary, with as little memory as the vocabulary allows.

Every loss that depends on the log-probabilities of given tokens acts on the model through c_t = dL/dlogp_t alone, so
this file knows no loss. Blocks of the vocabulary are processed one after the other, with t tokens, logits z = h W'
in the model's dtype and everything else in float32; logits never exist for the whole vocabulary:

    m, s = max z, sum exp(z - m)    updated from block to block: s = s exp(m_old - m) + sum exp(z - m)
    lse = m + log s                 logp = z[target] - lse
    D = (exp(z - lse) - [target]) (-c)                 dh = D W        dW = D' h

and with k targets a position, whose logp have c_1 .. c_k,

    D = exp(z - lse) sum_j (-c_j) - sum_j [target_j] (-c_j)

and dW [vocabulary, hidden], like the gradient of the embedding, is given to the optimizer as rows that it asks for
when it uses them (row_gradient.py). For D, z is kept in the model's dtype where that takes at most half of
dW's memory, t <= hidden / 2; for longer examples each block of z is computed again, one product more each time. c
may depend on every logp: it arrives in the backward pass, when all of them are known, so a loss whose c is not known
beforehand (DPO, clipped ratios) costs no other pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from apollod.trainer.optim.row_gradient import BLOCK_ROWS, FactoredRows, RowSink


def keeps_logits(targets: int, width: int) -> bool:
    """True if logits are kept for the backward pass, rather than computed again; the bits are the same."""
    return 2 * targets <= width


class BlockwiseLogProbabilities(torch.autograd.Function):
    """Log-probabilities float32 [t] of targets int64 [t], or [t, k] of targets [t, k], of hidden [t, n] bf16 or float32
    and weight [v, n], by the formulas above. The k targets of a position are distinct.

    With a `sink` the weight's gradient is delivered there in rows; without, it is dense.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, sink: RowSink | None) -> Tensor:
        keep = keeps_logits(len(targets), weight.shape[1])
        kept: list[Tensor] = []
        highest = hidden.new_full((len(targets),), -torch.inf, dtype=torch.float32)
        total = torch.zeros_like(highest)
        wanted = targets.view(len(targets), -1)
        chosen = torch.zeros_like(wanted, dtype=torch.float32)
        for first in range(0, weight.shape[0], BLOCK_ROWS):
            logits = hidden @ weight[first : first + BLOCK_ROWS].t()
            if keep:
                kept.append(logits)
            wide = logits.to(torch.float32, copy=keep)  # it is overwritten below, which kept float32 logits must not be
            index, here = _target_in(wanted, first, wide.shape[1])
            chosen += wide.gather(1, index) * here
            raised = torch.maximum(highest, wide.amax(1))
            total = total * (highest - raised).exp_() + wide.sub_(raised[:, None]).exp_().sum(1)
            highest = raised
        lse = highest + total.log()
        ctx.save_for_backward(hidden, weight, wanted, lse)
        ctx.kept, ctx.sink = kept, sink
        if sink is not None:
            sink.expect_rows(weight)
        return (chosen - lse[:, None]).view(targets.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """upstream: c = dL/dlogp, float32 [t] or [t, k]."""
        hidden, parameter, wanted, lse = ctx.saved_tensors
        weight, kept = parameter.detach(), ctx.kept
        ctx.kept = None  # the graph may live on, and these are overwritten
        logits = _LogitGradient(hidden, weight, wanted, lse, upstream.neg().view(wanted.shape), kept)
        back = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        for first in range(0, weight.shape[0], BLOCK_ROWS):
            rows = weight[first : first + BLOCK_ROWS]
            back += _share(logits.columns(first, first + len(rows)), rows)
        own: Tensor | None = None
        if ctx.needs_input_grad[1]:
            gradient = FactoredRows(weight.shape, logits.columns, hidden)
            if ctx.sink is None:
                own = gradient.dense()
            else:
                ctx.sink.deliver_rows(parameter, gradient)
        return back.to(hidden.dtype), own, None, None


def _share(columns: Tensor, rows: Tensor) -> Tensor:
    """One block's part of D W, to be summed in float32: on a GPU not rounded before that. On CPU rounded to bf16, since
    torch's product in float32 takes four to five times as long."""
    if columns.is_cuda and columns.dtype == torch.bfloat16:
        return torch.mm(columns, rows, out_dtype=torch.float32)
    return columns @ rows


class _LogitGradient:
    """D, block by block. `targets`: int64 [t, k]; `scale`: -c, float32 [t, k]. `kept`: logits of every block, which D
    overwrites; empty: compute them again."""

    def __init__(
        self, hidden: Tensor, weight: Tensor, targets: Tensor, lse: Tensor, scale: Tensor, kept: list[Tensor]
    ) -> None:
        self._hidden, self._weight, self._targets, self._lse, self._scale = hidden, weight, targets, lse, scale
        for number, logits in enumerate(kept):
            self._differentiate_(logits, number * BLOCK_ROWS)
        self._blocks = kept

    def columns(self, first: int, last: int) -> Tensor:
        """Columns first .. last-1, a block or its beginning, [t, last - first] in the model's dtype."""
        if self._blocks:
            return self._blocks[first // BLOCK_ROWS]
        logits = self._hidden @ self._weight[first:last].t()
        self._differentiate_(logits, first)
        return logits

    def _differentiate_(self, logits: Tensor, first: int) -> None:
        chance = logits.float().sub_(self._lse[:, None]).exp_()
        index, here = _target_in(self._targets, first, logits.shape[1])
        if index.shape[1] == 1:
            chance.scatter_(1, index, chance.gather(1, index) - here)
            logits.copy_(chance.mul_(self._scale))
        else:  # at most one summand per column is not zero, so the order does not matter
            chance.mul_(self._scale.sum(1, keepdim=True))
            logits.copy_(chance.scatter_add_(1, index, (here * self._scale).neg_()))


def _target_in(targets: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """For the block of columns from `first` on: the targets' columns, int64 [t, k], arbitrary for targets in another
    block; float32 [t, k] 1 or 0."""
    column = targets - first
    return column.clamp(0, count - 1), ((column >= 0) & (column < count)).float()
