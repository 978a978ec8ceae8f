"""Log-probabilities of given answers, without a gradient."""

import torch
from transformers import PreTrainedModel

from apollod.errors import RecordRefused
from apollod.trainer.objectives.model_ends import head_unapplied, large_head, outputs

POSITIONS = 64
"""positions whose float32 logits exist at once"""


@torch.no_grad()
def mean_logprob(model: PreTrainedModel, ids: tuple[int, ...], start: int) -> float:
    """Mean log-probability (natural, from float32 logits) of ids[start:], each given those before it. Raises
    RecordRefused for unknown tokens, and if there are none before or after `start`."""
    vocabulary = model.config.get_text_config().vocab_size
    if not 1 <= start < len(ids) or not all(0 <= token < vocabulary for token in ids):
        raise RecordRefused(
            f"{len(ids)} tokens from {start} on, the largest {max(ids, default=0)}, are no answer of a model with "
            f"{vocabulary} tokens",
            "measure the baseline again: apollod ctl quality baseline",
        )
    tokens = torch.tensor([ids], device=model.device)
    places, targets = torch.arange(start - 1, len(ids) - 1, device=model.device), tokens[0, start:]
    head = large_head(model)
    if head is None:
        return _sum(outputs(model, tokens, places)[0], targets) / len(targets)
    with head_unapplied(head):
        hidden = outputs(model, tokens, places)[0]
    total = 0.0
    for first in range(0, len(targets), POSITIONS):
        some = slice(first, first + POSITIONS)
        total += _sum(head(hidden[some]), targets[some])
    return total / len(targets)


def _sum(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """Sum of the log-probabilities of targets int64 [t], from logits [t, vocabulary]."""
    wide = logits.float()
    chosen = wide.gather(1, targets[:, None])[:, 0]
    return float((chosen - wide.logsumexp(1)).double().sum())
