"""A model's two ends: its head at selected positions, its embedding with a gradient in rows."""

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

from apollod.trainer.optim.row_gradient import BLOCK_ROWS, RowSink, SparseRows


def outputs(model: PreTrainedModel, ids: Tensor, positions: Tensor) -> Tensor:
    """The head's output at `positions` of ids [rows, tokens]: [rows, positions, n]. Computed only there, if the model's
    forward allows that."""
    if _selects_positions(type(model).forward):
        found: Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=positions).logits
        return found
    found = model(input_ids=ids, use_cache=False).logits[:, positions]
    return found


@cache
def _selects_positions(forward: Callable[..., Any]) -> bool:
    return "logits_to_keep" in inspect.signature(forward).parameters


def large_head(model: PreTrainedModel) -> nn.Linear | None:
    """The head, if it has more than BLOCK_ROWS rows and alone makes logits of hidden states."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if type(head) is not nn.Linear or head.bias is not None or head.weight.shape[0] <= BLOCK_ROWS:
        return None
    return head if _ends_in_head(model, head) else None


_ENDS_IN_HEAD: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


@torch.no_grad()
def _ends_in_head(model: PreTrainedModel, head: nn.Linear) -> bool:
    """True if a model's logits are its head's output; some scale or cap it afterwards. Tested with one token, once."""
    if model not in _ENDS_IN_HEAD:
        passed: list[Tensor] = []

        def pass_on(hidden: Tensor) -> Tensor:
            passed.append(hidden)
            return hidden

        with _replaced(head, pass_on):
            logits = model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=model.device), use_cache=False).logits
        _ENDS_IN_HEAD[model] = len(passed) == 1 and logits is passed[0]
    return _ENDS_IN_HEAD[model]


@contextmanager
def head_unapplied(head: nn.Linear) -> Iterator[None]:
    """Within the context, the model returns hidden states in place of logits."""
    with _replaced(head, _unchanged):
        yield


def sink_of_both(model: PreTrainedModel, head: nn.Linear, sink: RowSink | None) -> RowSink | None:
    """`sink`, or None if a tied embedding's share could not come as rows."""
    embedding = model.get_input_embeddings()
    return None if embedding.weight is head.weight and not _is_plain(embedding) else sink


def comes_as_rows(parameter: Tensor, sink: RowSink | None) -> bool:
    return sink is not None and parameter.requires_grad and sink.takes_rows(parameter)


def _is_plain(embedding: nn.Module) -> TypeGuard[nn.Embedding]:
    """True if it returns rows of its weight unchanged, and its gradient is the plain sum of theirs."""
    return type(embedding) is nn.Embedding and embedding.max_norm is None and not embedding.scale_grad_by_freq


@contextmanager
def sparse_embedding(model: PreTrainedModel, sink: RowSink | None) -> Iterator[None]:
    """Within the context, the gradient of the embedding goes to `sink` in rows, if that takes them."""
    embedding = model.get_input_embeddings()
    with ExitStack() as stack:
        if sink is not None and _is_plain(embedding) and comes_as_rows(embedding.weight, sink):
            stack.enter_context(_replaced(embedding, partial(_embed, embedding, sink)))
        yield


def _embed(embedding: nn.Embedding, sink: RowSink, ids: Tensor) -> Tensor:
    found: Tensor = _SparseEmbedding.apply(embedding.weight, ids, embedding.padding_idx, sink)  # type: ignore[no-untyped-call]
    return found


def _unchanged(hidden: Tensor) -> Tensor:
    return hidden


@contextmanager
def _replaced(module: nn.Module, forward: Callable[..., Tensor]) -> Iterator[None]:
    """Within the context, `module` computes `forward` instead."""
    module.forward = forward
    try:
        yield
    finally:
        del module.forward  # the class's own again


class _SparseEmbedding(torch.autograd.Function):
    """Rows `ids` of weight [v, n]; the weight's gradient goes to `sink` as the used rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, padding: int | None, sink: RowSink) -> Tensor:
        # Early, while a device has hardly begun: the number of rows has to be waited for.
        rows, place = torch.unique(ids, return_inverse=True)
        ctx.save_for_backward(weight, rows, place)
        ctx.padding, ctx.sink, ctx.rows_here = padding, sink, rows.cpu()
        sink.expect_rows(weight)
        return F.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, None, None, None]:
        weight, rows, place = ctx.saved_tensors
        # torch's own kernel on the rows that occur: the same sums in the same order
        values = torch.ops.aten.embedding_dense_backward(upstream, place, len(rows), -1, False)
        if ctx.padding is not None:
            values.masked_fill_((rows == ctx.padding)[:, None], 0.0)
        ctx.sink.deliver_rows(weight, SparseRows(weight.shape, rows, values, ctx.rows_here))
        return None, None, None, None
