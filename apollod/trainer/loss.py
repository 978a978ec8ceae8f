"""The loss of an example: mean cross-entropy over its learned tokens, with as little memory as a large vocabulary allows.

Logits exist at the positions before learned tokens only. Above BLOCK_ROWS entries of the vocabulary, blocks of it are gone
through one after the other, with t learned tokens, logits z = h W' in the model's dtype and everything else in float32:

    m, s = max z, sum exp(z - m)    updated from block to block: s = s exp(m_old - m) + sum exp(z - m)
    lse = m + log s                 L = mean(lse - z[target])
    D = (exp(z - lse) - [target]) / t                  dh = D W        dW = D' h

and dW [vocabulary, hidden], like the gradient of the embedding, is given to the optimizer as rows that it asks for when it uses
them (row_gradient.py). What is kept for D is z in the model's dtype where that takes at most half of what dW would, t <= hidden / 2;
for longer examples each block of z is computed again, one product more each time. Smaller vocabularies take torch's own cross-entropy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel

from apollod.trainer.data import Tokens
from apollod.trainer.row_gradient import BLOCK_ROWS, FactoredRows, RowSink, SparseRows


def loss_of(model: PreTrainedModel, tokens: Tokens, sink: RowSink | None = None) -> Tensor:
    """Mean cross-entropy over the learned tokens, float32 [].

    `sink` takes the gradients of a large embedding and head in rows, if it wants them; without it they are dense.
    """
    ids = torch.tensor([tokens.ids], device=model.device)
    at = torch.tensor([i for i, learned in enumerate(tokens.mask) if learned], device=model.device)
    targets = ids[0, at]
    head = _large_head(model)
    if head is None:
        return F.cross_entropy(_outputs(model, ids, at - 1).float(), targets)
    sink = _of_both(model, head, sink)
    with _replaced(head, _unchanged), _sparse_embedding(model, sink):
        hidden = _outputs(model, ids, at - 1)
    loss: Tensor = BlockwiseCrossEntropy.apply(hidden, head.weight, targets, sink if _as_rows(head.weight, sink) else None)  # type: ignore[no-untyped-call]
    return loss


class BlockwiseCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of hidden [t, n] bf16 or float32, weight [v, n] and targets int64 [t] by the formulas above.

    With a `sink` the weight's gradient is delivered there in rows; without, it is dense.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, sink: RowSink | None) -> Tensor:
        keep = 2 * len(targets) <= weight.shape[1]
        kept: list[Tensor] = []
        highest = hidden.new_full((len(targets),), -torch.inf, dtype=torch.float32)
        total, chosen = torch.zeros_like(highest), torch.zeros_like(highest)
        for first in range(0, weight.shape[0], BLOCK_ROWS):
            logits = hidden @ weight[first : first + BLOCK_ROWS].t()
            if keep:
                kept.append(logits)
            wide = logits.float()
            index, here = _target_in(targets, first, wide.shape[1])
            chosen += wide.gather(1, index)[:, 0] * here
            raised = torch.maximum(highest, wide.amax(1))
            total = total * (highest - raised).exp_() + wide.sub_(raised[:, None]).exp_().sum(1)
            highest = raised
        lse = highest + total.log()
        ctx.save_for_backward(hidden, weight, targets, lse)
        ctx.kept, ctx.sink = kept, sink
        if sink is not None:
            sink.expect_rows(weight)
        return (lse - chosen).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        hidden, parameter, targets, lse = ctx.saved_tensors
        weight, kept = parameter.detach(), ctx.kept
        ctx.kept = None  # the graph may live on, and they become something else
        logits = _LogitGradient(hidden, weight, targets, lse, upstream / len(targets), kept)
        back = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        for first in range(0, weight.shape[0], BLOCK_ROWS):
            rows = weight[first : first + BLOCK_ROWS]
            back += _share(logits.columns(first, first + len(rows)), rows)
        own: Tensor | None = None
        if ctx.needs_input_grad[1]:
            gradient = FactoredRows(weight.shape, logits.columns, hidden)
            if ctx.sink is None:
                own = gradient.whole()
            else:
                ctx.sink.deliver_rows(parameter, gradient)
        return back.to(hidden.dtype), own, None, None


def _share(columns: Tensor, rows: Tensor) -> Tensor:
    """One block's part of D W, to be added up in float32: not rounded before that on a GPU. On CPU it is, to bf16, since torch's
    product in float32 takes four to five times as long."""
    if columns.is_cuda and columns.dtype == torch.bfloat16:
        return torch.mm(columns, rows, out_dtype=torch.float32)
    return columns @ rows


class _LogitGradient:
    """D, block by block. `kept`: logits of every block, which D takes the place of; or none, to compute them again."""

    def __init__(self, hidden: Tensor, weight: Tensor, targets: Tensor, lse: Tensor, scale: Tensor, kept: list[Tensor]) -> None:
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
        chance.scatter_(1, index, chance.gather(1, index) - here[:, None])
        logits.copy_(chance.mul_(self._scale))


def _target_in(targets: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Of the block of columns first ..: the target's column, int64 [t, 1], any where it is in another block; float32 [t] 1 or 0."""
    column = targets - first
    return column.clamp(0, count - 1)[:, None], ((column >= 0) & (column < count)).float()


class _SparseEmbedding(torch.autograd.Function):
    """Rows `ids` of weight [v, n]; the weight's gradient goes to `sink` as the rows that were used."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, padding: int | None, sink: RowSink) -> Tensor:
        ctx.save_for_backward(weight, ids)
        ctx.padding, ctx.sink = padding, sink
        sink.expect_rows(weight)
        return F.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, None, None, None]:
        weight, ids = ctx.saved_tensors
        rows, place = ids.unique(return_inverse=True)
        # torch's own kernel on the rows that occur: the same sums in the same order
        values = torch.ops.aten.embedding_dense_backward(upstream, place, len(rows), -1, False)
        if ctx.padding is not None:
            values.masked_fill_((rows == ctx.padding)[:, None], 0.0)
        ctx.sink.deliver_rows(weight, SparseRows(weight.shape, rows, values))
        return None, None, None, None


# --- the model's two ends -----------------------------------------------------------------------------------------


def _outputs(model: PreTrainedModel, ids: Tensor, positions: Tensor) -> Tensor:
    """What the head gives at `positions` of ids [1, tokens]: [positions, n]. Only there, where the model's forward allows that."""
    if _selects_positions(type(model).forward):
        found: Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=positions).logits[0]
        return found
    found = model(input_ids=ids, use_cache=False).logits[0, positions]
    return found


@cache
def _selects_positions(forward: Callable[..., Any]) -> bool:
    return "logits_to_keep" in inspect.signature(forward).parameters


def _large_head(model: PreTrainedModel) -> nn.Linear | None:
    """The head, if it has more than BLOCK_ROWS rows and is all that makes logits of hidden states."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if type(head) is not nn.Linear or head.bias is not None or head.weight.shape[0] <= BLOCK_ROWS:
        return None
    return head if _ends_in_head(model, head) else None


_ENDS_IN_HEAD: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


@torch.no_grad()
def _ends_in_head(model: PreTrainedModel, head: nn.Linear) -> bool:
    """Whether a model's logits are what its head returns; some scale or cap them afterwards. Asked of one token, once."""
    if model not in _ENDS_IN_HEAD:
        passed: list[Tensor] = []

        def pass_on(hidden: Tensor) -> Tensor:
            passed.append(hidden)
            return hidden

        with _replaced(head, pass_on):
            logits = model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=model.device), use_cache=False).logits
        _ENDS_IN_HEAD[model] = len(passed) == 1 and logits is passed[0]
    return _ENDS_IN_HEAD[model]


def _of_both(model: PreTrainedModel, head: nn.Linear, sink: RowSink | None) -> RowSink | None:
    """`sink`, or None where a tied embedding's share could not come as rows."""
    embedding = model.get_input_embeddings()
    return None if embedding.weight is head.weight and not _is_plain(embedding) else sink


def _as_rows(parameter: Tensor, sink: RowSink | None) -> bool:
    return sink is not None and parameter.requires_grad and sink.takes_rows(parameter)


def _is_plain(embedding: nn.Module) -> TypeGuard[nn.Embedding]:
    """Whether it gives rows of its weight as they are, and its gradient is the sum of what comes back to them."""
    return type(embedding) is nn.Embedding and embedding.max_norm is None and not embedding.scale_grad_by_freq


@contextmanager
def _sparse_embedding(model: PreTrainedModel, sink: RowSink | None) -> Iterator[None]:
    """Let the gradient of the embedding go to `sink` in rows, if that takes them."""
    embedding = model.get_input_embeddings()
    with ExitStack() as stack:
        if sink is not None and _is_plain(embedding) and _as_rows(embedding.weight, sink):
            stack.enter_context(_replaced(embedding, partial(_embed, embedding, sink)))
        yield


def _embed(embedding: nn.Embedding, sink: RowSink, ids: Tensor) -> Tensor:
    found: Tensor = _SparseEmbedding.apply(embedding.weight, ids, embedding.padding_idx, sink)  # type: ignore[no-untyped-call]
    return found


def _unchanged(hidden: Tensor) -> Tensor:
    return hidden


@contextmanager
def _replaced(module: nn.Module, forward: Callable[..., Tensor]) -> Iterator[None]:
    """`module` computes something else meanwhile."""
    module.forward = forward
    try:
        yield
    finally:
        del module.forward  # the class's own again
