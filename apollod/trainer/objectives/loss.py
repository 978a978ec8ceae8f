"""The loss of an example: the objective applied to the model's log-probabilities of its learned tokens."""

from __future__ import annotations

from collections.abc import Sequence

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

    Logits exist only at the positions before learned tokens. The graphs of all sequences of the example live until
    their common backward pass: a parameter's gradient is complete, and the optimizer may write it, once all of them are
    through. `sink` takes the gradients of a large embedding and head in rows, if it wants them; without it they are
    dense.
    """
    sequences = tokens.sequences()
    if objective.token_mean and len(sequences) == 1 and large_head(model) is None:
        # The same loss, summed by torch in another order than mean(): that of the losses in journals.
        return F.cross_entropy(*_logits(model, *sequences[0]))
    found, at = [], 0
    for ids, mask in sequences:
        begin, at = at, at + sum(mask)
        found.append(_log_probabilities(model, ids, mask, sink, tokens.asked(begin, at)))
    return objective.loss(found[0] if len(found) == 1 else torch.cat(found), tokens.tensors(model.device))


def losses_of(
    model: PreTrainedModel, batch: Sequence[Tokens], sink: RowSink | None = None, objective: Objective = SFT
) -> Tensor:
    """The objective's loss of each example, float32 [examples], with one graph for all of them. Each is one sequence.

    They go through the model as one batch, padded on the right with each one's own last token: in a causal model
    earlier positions do not see it, and no other row of the embedding gets a gradient. `sink`: see `loss_of`.
    """
    found = _log_probabilities_of_batch(model, batch, sink)
    return torch.stack(
        [objective.loss(logps, tokens.tensors(model.device)) for logps, tokens in zip(found, batch, strict=True)]
    )


def _log_probabilities_of_batch(model: PreTrainedModel, batch: Sequence[Tokens], sink: RowSink | None) -> list[Tensor]:
    """Log-probabilities of each sequence's learned tokens, float32 [targets], or of the tokens that it asks for,
    [targets, k]."""
    longest = max(len(tokens.ids) for tokens in batch)
    ids = torch.tensor([tokens.ids + tokens.ids[-1:] * (longest - len(tokens.ids)) for tokens in batch])
    learned = torch.tensor([tokens.mask + [False] * (longest - len(tokens.mask)) for tokens in batch])
    asked = torch.cat([_asked(tokens) for tokens in batch])
    found = _asked_of(model, ids, learned, asked, sink)
    return list(torch.split(found, [tokens.targets for tokens in batch]))


def _asked(tokens: Tokens) -> Tensor:
    """Token ids whose log-probabilities the loss of one sequence needs: int64 [targets], or [targets, k]."""
    rows = tokens.asked(0, tokens.targets)
    return torch.tensor(tokens.ids)[torch.tensor(tokens.mask)] if rows is None else rows


def _log_probabilities(
    model: PreTrainedModel, ids: list[int], mask: list[bool], sink: RowSink | None, asked: Tensor | None
) -> Tensor:
    """Log-probabilities of the learned tokens of one sequence, float32 [targets], or of the `asked` ones, [targets, k];
    with a graph."""
    if asked is None and large_head(model) is None:
        return F.cross_entropy(*_logits(model, ids, mask), reduction="none").neg()
    tokens, learned = torch.tensor([ids]), torch.tensor([mask])
    return _asked_of(model, tokens, learned, tokens[learned] if asked is None else asked, sink)


def _asked_of(model: PreTrainedModel, ids: Tensor, learned: Tensor, asked: Tensor, sink: RowSink | None) -> Tensor:
    """Log-probabilities float32, shaped like `asked` [targets] or [targets, k], at the positions of ids [rows, tokens]
    that are `learned`, row by row; with a graph. All inputs in host memory, so that no device need be waited for."""
    asked = asked.to(model.device)
    head = large_head(model)
    if head is None:  # its logits fit into one block, or are not just its head's output
        logps = _in_places(model, ids, learned).float().log_softmax(-1)
        return logps.gather(1, asked) if asked.dim() == 2 else logps.gather(1, asked[:, None])[:, 0]
    sink = sink_of_both(model, head, sink)
    with head_unapplied(head), sparse_embedding(model, sink):
        hidden = _in_places(model, ids, learned)
    rows = sink if comes_as_rows(head.weight, sink) else None
    found: Tensor = BlockwiseLogProbabilities.apply(hidden, head.weight, asked, rows)  # type: ignore[no-untyped-call]
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
