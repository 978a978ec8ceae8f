"""One optimizer step, a pure function of weights, optimizer state, example, step number and learning rate.

Nothing else may have a say: no dropout, no global random numbers, no algorithm whose result depends on timing. The
same step gives the same bits in another process; replay after a crash rests on that.
"""

import inspect
import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from apollod.failpoints import failpoint
from apollod.trainer.attach import Attached
from apollod.trainer.data import Tokens
from apollod.trainer.named_optimizer import NamedOptimizer
from apollod.wire.messages import StepDone

SKIPPED_SHOWN = 3  # names of skipped parameters in a step's note


def be_deterministic() -> None:
    """Make torch raise where an operation has no deterministic algorithm. For the whole process, before any step."""
    torch.use_deterministic_algorithms(True)
    # The switch also fills every new tensor with NaN, to expose reads of uninitialised memory, which costs bandwidth.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def loss_of(model: PreTrainedModel, tokens: Tokens) -> torch.Tensor:
    """Mean cross-entropy over the learned tokens, float32 [].

    Logits are made at the positions before them only, where the model's forward allows that (`logits_to_keep`).
    """
    device = model.device
    ids = torch.tensor([tokens.ids], device=device)
    targets = torch.tensor([i for i, learned in enumerate(tokens.mask) if learned], device=device)
    before = targets - 1
    if _selects_positions(type(model).forward):
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=before).logits[0]
    else:
        logits = model(input_ids=ids, use_cache=False).logits[0, before]
    return F.cross_entropy(logits.float(), ids[0, targets])


@cache
def _selects_positions(forward: Callable[..., Any]) -> bool:
    return "logits_to_keep" in inspect.signature(forward).parameters


def run_step(attached: Attached, optimizer: NamedOptimizer, tokens: Tokens, step: int, lr: float, replay: bool = False) -> StepDone:
    """Learn one example: forward, backward with the update inside, fingerprint.

    `optimizer` has its hooks attached, so a gradient lives only until its parameter is updated. A loss that is not
    finite writes nothing (`applied` false). An exception out of here may leave the weights half updated.
    """
    failpoint("trainer.step.begun")
    started = time.perf_counter()
    loss_tensor = loss_of(attached.model, tokens)
    loss = loss_tensor.item()
    applied = math.isfinite(loss)
    grad_norm = update_norm = 0.0
    skipped_zero = skipped_nonfinite = 0
    note = "loss is not finite: nothing was written"
    if applied:
        optimizer.begin(step, lr)
        loss_tensor.backward()  # type: ignore[no-untyped-call]
        failpoint("trainer.step.updated")
        report = optimizer.finish()
        grad_norm, update_norm = report.grad_norm, report.update_norm
        skipped_zero, skipped_nonfinite = report.skipped_zero, report.skipped_nonfinite
        note = _skipped(report.skipped)
    if attached.device.type == "cuda":
        torch.cuda.synchronize(attached.device)  # the engine may read from here on
    return StepDone(
        step=step,
        applied=applied,
        loss=loss if applied else None,
        grad_norm=grad_norm,
        update_norm=update_norm,
        tokens=len(tokens.ids),
        targets=tokens.targets,
        fingerprint=attached.weights.fingerprint(),
        seconds=time.perf_counter() - started,
        skipped_zero=skipped_zero,
        skipped_nonfinite=skipped_nonfinite,
        replay=replay,
        note=note,
    )


def _skipped(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SKIPPED_SHOWN} more" if len(names) > SKIPPED_SHOWN else ""
    return f"skipped {', '.join(names[:SKIPPED_SHOWN])}{more}"
