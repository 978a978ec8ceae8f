"""The loss of an example: the model's log-probabilities of its learned tokens, and what the objective makes of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from apollod.trainer.objectives.head import BlockwiseLogProbabilities
from apollod.trainer.objectives.model_ends import (
    comes_as_rows,
    head_unapplied,
    large_head,
    outputs,
    sink_of_both,
    sparse_embedding,
)
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.sft import SFT
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.row_gradient import RowSink


def loss_of(model: PreTrainedModel, tokens: Tokens, sink: RowSink | None = None, objective: Objective = SFT) -> Tensor:
    """The objective's loss of one example, float32 [].

    Logits exist at the positions before learned tokens only. The graphs of all sequences of the example live until
    the backward pass, which is one: a parameter's gradient is complete, and the optimizer may write it, when all of
    them are through. `sink` takes the gradients of a large embedding and head in rows, if it wants them; without it
    they are dense.
    """
    sequences = tokens.sequences()
    if objective.token_mean and len(sequences) == 1 and large_head(model) is None:
        # The same loss, added up by torch in another order than that of mean(): the one of the losses in journals.
        return F.cross_entropy(*_logits(model, *sequences[0]))
    found, at = [], 0
    for ids, mask in sequences:
        begin, at = at, at + sum(mask)
        found.append(_log_probabilities(model, ids, mask, sink, tokens.asked(begin, at)))
    return objective.loss(found[0] if len(found) == 1 else torch.cat(found), tokens.tensors(model.device))


def _log_probabilities(
    model: PreTrainedModel, ids: list[int], mask: list[bool], sink: RowSink | None, asked: Tensor | None
) -> Tensor:
    """Of the learned tokens of one sequence, float32 [targets], or of those that are `asked` about, [targets, k]; with
    a graph."""
    head = large_head(model)
    if head is None:  # its logits are no more than one block, or not what its head returns
        if asked is not None:
            logits, _ = _logits(model, ids, mask)
            return logits.log_softmax(-1).gather(1, asked.to(logits.device))
        return F.cross_entropy(*_logits(model, ids, mask), reduction="none").neg()
    sink = sink_of_both(model, head, sink)
    tokens, positions = _positions(model, ids, mask)
    with head_unapplied(head), sparse_embedding(model, sink):
        hidden = outputs(model, tokens, positions - 1)
    rows = sink if comes_as_rows(head.weight, sink) else None
    targets = tokens[0, positions] if asked is None else asked.to(tokens.device)
    found: Tensor = BlockwiseLogProbabilities.apply(hidden, head.weight, targets, rows)  # type: ignore[no-untyped-call]
    return found


def _logits(model: PreTrainedModel, ids: list[int], mask: list[bool]) -> tuple[Tensor, Tensor]:
    """Logits float32 [targets, vocabulary] and the learned tokens int64 [targets] of one sequence."""
    tokens, positions = _positions(model, ids, mask)
    return outputs(model, tokens, positions - 1).float(), tokens[0, positions]


def _positions(model: PreTrainedModel, ids: list[int], mask: list[bool]) -> tuple[Tensor, Tensor]:
    """Tokens int64 [1, n], and where in them the learned ones are, int64 [targets]."""
    positions = [i for i, learned in enumerate(mask) if learned]
    return torch.tensor([ids], device=model.device), torch.tensor(positions, dtype=torch.int64, device=model.device)
