"""The loss of an example: the objective applied to the model's log-probabilities of its learned tokens, with as little
memory as a large vocabulary allows.

The head is applied at the positions before learned tokens only. Every loss that depends on the log-probabilities of
given tokens acts on the model through c_t = dL/dlogp_t alone, so `BlockwiseLogProbabilities` knows no loss. Blocks of
the vocabulary are processed one after the other, with t tokens, logits z = h W' in the model's dtype and everything
else in float32; logits never exist for the whole vocabulary:

    m, s = max z, sum exp(z - m)    updated from block to block: s = s exp(m_old - m) + sum exp(z - m)
    lse = m + log s                 logp = z[target] - lse
    D = (exp(z - lse) - [target]) (-c)                 dh = D W        dW = D' h

and with k targets a position, whose logp have c_1 .. c_k,

    D = exp(z - lse) sum_j (-c_j) - sum_j [target_j] (-c_j)

and at a temperature T with z / T for z, and D / T,

and dW [vocabulary, hidden], like the gradient of the embedding, is given to the optimizer as rows that it asks for
when it uses them (row_gradient.py). For D, z is kept in the model's dtype where that takes at most half of
dW's memory, t <= hidden / 2; for longer examples each block of z is computed again, one product more each time. c
may depend on every logp: it arrives in the backward pass, when all of them are known, so a loss whose c is not known
beforehand (DPO, clipped ratios) costs no other pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel

from apollod.trainer.objectives.objective import SFT, Objective
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.row_gradient import BLOCK_ROWS, FactoredRows, RowSink, SparseRows

Metrics = list[dict[str, float]]
"""`Objective.metrics` of one example after the other"""


def loss_of(
    model: PreTrainedModel, tokens: Tokens, sink: RowSink | None = None, objective: Objective = SFT,
    metrics: Metrics | None = None,
) -> Tensor:  # fmt: skip
    """The objective's loss of one example, float32 []; its metrics are added to `metrics`.

    Logits exist only at the positions before learned tokens. Several sequences go through the model as one batch, as in
    `losses_of`, so that they have one graph, and a parameter's gradient is complete before the one of the layer below
    begins. `sink` takes the gradients of a large embedding and head in rows, if it wants them; without it they are
    dense.
    """
    sequences = tokens.sequences()
    if objective.token_mean and len(sequences) == 1 and large_head(model) is None:
        # The same loss, summed by torch in another order than mean(): that of the losses in journals.
        return F.cross_entropy(*_logits(model, *sequences[0]))
    return _applied(objective, _log_probabilities(model, tokens, sink), tokens.tensors(model.device), metrics)


@torch.no_grad()
def log_probabilities(model: PreTrainedModel, tokens: Tokens) -> Tensor:
    """Log-probabilities of the learned tokens, float32 [targets], by the operations of a step, so that a step from the
    same weights has the same bits."""
    return _log_probabilities(model, tokens, None)


def _log_probabilities(model: PreTrainedModel, tokens: Tokens, sink: RowSink | None) -> Tensor:
    sequences, asked, heat = tokens.sequences(), tokens.asked(), tokens.temperatures()
    if len(sequences) > 1:
        return _log_probabilities_of_batch(model, sequences, _asked(tokens), heat, sink)
    if asked is None and heat is None and large_head(model) is None:
        return F.cross_entropy(*_logits(model, *sequences[0]), reduction="none").neg()
    ids, learned = torch.tensor([tokens.ids]), torch.tensor([tokens.mask])
    return _asked_of(model, ids, learned, _asked(tokens), heat, sink)


def losses_of(
    model: PreTrainedModel, batch: Sequence[Tokens], sink: RowSink | None = None, objective: Objective = SFT,
    metrics: Metrics | None = None,
) -> Tensor:  # fmt: skip
    """The objective's loss of each example, float32 [examples], with one graph for all of them. Each is one sequence,
    at temperature 1.

    They go through the model as one batch, padded on the right with each one's own last token: in a causal model
    earlier positions do not see it, and no other row of the embedding gets a gradient. `sink`: see `loss_of`.
    """
    sequences = [(tokens.ids, tokens.mask) for tokens in batch]
    asked = torch.cat([_asked(tokens) for tokens in batch])
    all_of_them = _log_probabilities_of_batch(model, sequences, asked, None, sink)
    found = torch.split(all_of_them, [tokens.targets for tokens in batch])
    pairs = zip(found, batch, strict=True)
    return torch.stack([_applied(objective, logps, tokens.tensors(model.device), metrics) for logps, tokens in pairs])


def _applied(objective: Objective, logps: Tensor, columns: Mapping[str, Tensor], metrics: Metrics | None) -> Tensor:
    if metrics is not None:
        metrics.append(objective.metrics(logps.detach(), columns))
    return objective.loss(logps, columns)


def _log_probabilities_of_batch(
    model: PreTrainedModel, sequences: Sequence[tuple[list[int], list[bool]]], asked: Tensor, heat: Tensor | None,
    sink: RowSink | None,
) -> Tensor:  # fmt: skip
    """Log-probabilities of all sequences, one after the other, as `_asked_of`; ids and mask of each."""
    longest = max(len(ids) for ids, _ in sequences)
    ids = torch.tensor([ids + ids[-1:] * (longest - len(ids)) for ids, _ in sequences])
    learned = torch.tensor([mask + [False] * (longest - len(mask)) for _, mask in sequences])
    return _asked_of(model, ids, learned, asked, heat, sink)


def _asked(tokens: Tokens) -> Tensor:
    """Token ids whose log-probabilities the loss of an example needs: int64 [targets], or [targets, k]."""
    rows = tokens.asked()
    return torch.tensor(tokens.ids)[torch.tensor(tokens.mask)] if rows is None else rows


def _asked_of(
    model: PreTrainedModel, ids: Tensor, learned: Tensor, asked: Tensor, heat: Tensor | None, sink: RowSink | None
) -> Tensor:
    """Log-probabilities float32, shaped like `asked` [targets] or [targets, k], at the positions of ids [rows, tokens]
    that are `learned`, row by row; with a graph. `heat`: temperature of each position, float32 [targets]; None: 1. All
    inputs in host memory, so that no device need be waited for."""
    asked, cold = asked.to(model.device), None if heat is None else heat.reciprocal().to(model.device)
    head = large_head(model)
    if head is None:  # its logits fit into one block, or are not just its head's output
        logits = _in_places(model, ids, learned).float()
        logps = (logits if cold is None else logits * cold[:, None]).log_softmax(-1)
        return logps.gather(1, asked) if asked.dim() == 2 else logps.gather(1, asked[:, None])[:, 0]
    sink = sink_of_both(model, head, sink)
    with head_unapplied(head), sparse_embedding(model, sink):
        hidden = _in_places(model, ids, learned)
    rows = sink if comes_as_rows(head.weight, sink) else None
    found: Tensor = BlockwiseLogProbabilities.apply(hidden, head.weight, asked, rows, cold)  # type: ignore[no-untyped-call]
    return found


def _logits(model: PreTrainedModel, ids: list[int], mask: list[bool]) -> tuple[Tensor, Tensor]:
    """Logits float32 [targets, vocabulary] and the learned tokens int64 [targets] of one sequence."""
    tokens, learned = torch.tensor([ids]), torch.tensor([mask])
    return _in_places(model, tokens, learned).float(), tokens[learned].to(model.device)


def _in_places(model: PreTrainedModel, ids: Tensor, learned: Tensor) -> Tensor:
    """The head's output before each learned token, row by row: [targets, n]."""
    positions = learned.any(0).nonzero()[:, 0]
    found = outputs(model, ids.to(model.device), (positions - 1).to(model.device))
    if len(ids) == 1:
        return found[0]
    row, place = learned[:, positions].nonzero(as_tuple=True)
    return found[row.to(model.device), place.to(model.device)]


# --- a model's two ends: its head at selected positions, its embedding with a gradient in rows ------------------------


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
    with _replaced(head, lambda hidden: hidden):
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


# --- the head's log-probabilities, block by block ---------------------------------------------------------------------


def keeps_logits(targets: int, width: int) -> bool:
    """True if logits are kept for the backward pass, rather than computed again; the bits are the same."""
    return 2 * targets <= width


class BlockwiseLogProbabilities(torch.autograd.Function):
    """Log-probabilities float32 [t] of targets int64 [t], or [t, k] of targets [t, k], of hidden [t, n] bf16 or float32
    and weight [v, n], by the formulas above. The k targets of a position are distinct.

    With a `sink` the weight's gradient is delivered there in rows; without, it is dense. `cold`: 1 / T of each
    position, float32 [t].
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, sink: RowSink | None, cold: Tensor | None = None
    ) -> Tensor:
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
            if cold is not None:
                wide.mul_(cold[:, None])
            index, here = _target_in(wanted, first, wide.shape[1])
            chosen += wide.gather(1, index) * here
            raised = torch.maximum(highest, wide.amax(1))
            total = total * (highest - raised).exp_() + wide.sub_(raised[:, None]).exp_().sum(1)
            highest = raised
        lse = highest + total.log()
        ctx.save_for_backward(hidden, weight, wanted, lse)
        ctx.kept, ctx.sink, ctx.cold = kept, sink, cold
        if sink is not None:
            sink.expect_rows(weight)
        return (chosen - lse[:, None]).view(targets.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """upstream: c = dL/dlogp, float32 [t] or [t, k]."""
        hidden, parameter, wanted, lse = ctx.saved_tensors
        weight, kept = parameter.detach(), ctx.kept
        ctx.kept = None  # the graph may live on, and these are overwritten
        logits = _LogitGradient(hidden, weight, wanted, lse, upstream.neg().view(wanted.shape), kept, ctx.cold)
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
        return back.to(hidden.dtype), own, None, None, None


def _share(columns: Tensor, rows: Tensor) -> Tensor:
    """One block's part of D W, to be summed in float32: on a GPU not rounded before that. On CPU rounded to bf16, since
    torch's product in float32 takes four to five times as long."""
    if columns.is_cuda and columns.dtype == torch.bfloat16:
        return torch.mm(columns, rows, out_dtype=torch.float32)
    return columns @ rows


class _LogitGradient:
    """D, block by block. `targets`: int64 [t, k]; `scale`: -c, float32 [t, k]. `kept`: logits of every block, which D
    overwrites; empty: compute them again. `cold`: see `BlockwiseLogProbabilities`."""

    def __init__(
        self, hidden: Tensor, weight: Tensor, targets: Tensor, lse: Tensor, scale: Tensor, kept: list[Tensor],
        cold: Tensor | None,
    ) -> None:  # fmt: skip
        self._hidden, self._weight, self._targets, self._lse, self._cold = hidden, weight, targets, lse, cold
        self._scale = scale if cold is None else scale * cold[:, None]
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
        chance = logits.float()
        if self._cold is not None:
            chance = chance.mul_(self._cold[:, None])
        chance = chance.sub_(self._lse[:, None]).exp_()
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
