"""Measures how far the model has moved from its earlier outputs: the divergence at each anchor of a step.

    L = L_task + w mean_j KL_j        KL_j: of `context`, of anchor j, in nats a token

Sources: Li and Hoiem, "Learning without Forgetting" (arXiv:1606.09282); Shenfeld, Pari and Agrawal, "RL's Razor"
(arXiv:2509.04259): forgetting follows the KL to the earlier model.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from transformers import PreTrainedModel

from apollod.trainer.objectives.context import CONTEXT
from apollod.trainer.objectives.loss import losses_of
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.row_gradient import RowSink


def divergences(model: PreTrainedModel, anchors: Sequence[Tokens], sink: RowSink | None = None) -> Tensor:
    """KL of each anchor, float32 [anchors], nats a token, with one graph. Each is one sequence, encoded by `context`.
    `sink`: see `loss_of`."""
    return losses_of(model, anchors, sink, CONTEXT)
