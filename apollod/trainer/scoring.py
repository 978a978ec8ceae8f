"""Scores by forward passes that write nothing: the trainer's half of an alignment, the loss of examples as a step would
compute it, and log-probabilities of reference answers. Alignments and examples give way to other work.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from apollod.core.facts.alignment import TOKENS
from apollod.errors import RecordRefused
from apollod.trainer.bind.attach import Attached
from apollod.trainer.kernels.device_to_host import in_host_memory
from apollod.trainer.objectives.loss import head_unapplied, large_head, loss_of, outputs
from apollod.trainer.objectives.objective import SFT, Objective
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.manifest import tensor_digest
from apollod.wire.messages import ExamplesScored, Probed, ProbeTrainer, Rescore, ScoredAgain, StepExample

TokensOf = Callable[[StepExample, Objective], Tokens]
"""tokens of an example; raises RecordRefused if they are not the learned ones"""
POSITIONS = 64
"""positions of a reference answer whose float32 logits exist at once"""
PROBE_TEXT = """\
The harbour master keeps three books. In the first she writes when the tide turns, in the second which boats came in and
what they carried: 14 crates of salt, 3 barrels of tar, one piano. The third book is for questions. Why does the bell ring
twice on Thursdays? Who paid for the new lamp? She answers most of them herself, in red ink, months later.

def tide(hour: int, offset: float = 0.5) -> float:
    return 1.2 * math.sin(2 * math.pi * (hour - offset) / 12.42)

"You could ask the ferryman," said the boy. "I did," she said, "and he told me to look it up." On the wall hangs a map of
1887, drawn by hand; the eastern shoal is in the wrong place, but nobody has dared to correct it. {"depth_m": 4.5, "buoy":
"green", "checked": true}. Der Wind dreht auf Nordwest. Le phare s'allume a six heures. Seven ships, then none until spring.
"""


# --- an alignment: log-probabilities of a built-in text on the views, or digests of all of them -----------------------


def probe(
    attached: Attached,
    tokenizer: PreTrainedTokenizerBase,
    max_tokens: int,
    asked: ProbeTrainer,
    wanted_elsewhere: Callable[[], bool] = lambda: False,
) -> Probed:
    """Answer `asked`. Reads the weights only. Raises RecordRefused if the text has too few tokens to compare."""
    started = time.perf_counter()
    look = wanted_elsewhere if asked.gives_way else None
    if asked.digests:
        held = digests(attached, look)
        seconds = time.perf_counter() - started
        return Probed(asked.step, number=asked.number, digests=held or {}, seconds=seconds, gave_way=held is None)
    most = min(asked.tokens or TOKENS, max_tokens)
    ids = tuple(tokenizer(PROBE_TEXT, add_special_tokens=False)["input_ids"])[:most]
    if len(ids) < 2:
        raise RecordRefused("the tokenizer makes no two tokens of the built-in text", "report this model's tokenizer")
    try:
        with giving_way(attached.model, look):
            logprobs = score(attached.model, ids)
    except GaveWay:
        return Probed(asked.step, number=asked.number, gave_way=True, seconds=time.perf_counter() - started)
    return Probed(asked.step, ids, logprobs, number=asked.number, seconds=time.perf_counter() - started)


@torch.no_grad()
def score(model: PreTrainedModel, ids: tuple[int, ...]) -> tuple[float, ...]:
    """Log-probability (natural, from float32 logits) of each of ids 1.. given those before it."""
    tokens = torch.tensor([ids], device=model.device)
    logits = model(input_ids=tokens, use_cache=False).logits[0, :-1].float()
    chosen = logits.log_softmax(-1).gather(1, tokens[0, 1:, None])
    return tuple(chosen[:, 0].tolist())


def digests(attached: Attached, wanted_elsewhere: Callable[[], bool] | None = None) -> dict[str, str] | None:
    """Checkpoint name -> digest of the tensor in its dtype in memory, as the model uses it. None if interrupted by
    other work."""
    views = attached.weights.views
    held = views | {name: parameter.data for name, parameter in attached.trainable if name in views}
    found = {}
    for name, tensor in held.items():
        if wanted_elsewhere is not None and wanted_elsewhere():
            return None
        found[name] = tensor_digest(in_host_memory(tensor.detach()).view(-1).view(torch.uint8).numpy())
    return found


# --- examples -----------------------------------------------------------------------------------------------------


def rescored(
    model: PreTrainedModel, tokens_of: TokensOf, asked: Rescore, wanted_elsewhere: Callable[[], bool]
) -> ExamplesScored:
    """Answer `asked`: scores of its examples, in their order, up to an interruption by other work."""
    began, scores = time.perf_counter(), list[ScoredAgain]()
    try:
        with giving_way(model, wanted_elsewhere):
            for example in asked.examples:
                scores.append(_scored(model, tokens_of, example))
    except GaveWay:
        pass
    return ExamplesScored(asked.number, tuple(scores), time.perf_counter() - began)


@torch.no_grad()
def _scored(model: PreTrainedModel, tokens_of: TokensOf, example: StepExample) -> ScoredAgain:
    try:
        tokens = tokens_of(example, SFT)
    except RecordRefused as error:
        return ScoredAgain(example.example, None, reason=error.line())
    loss = loss_of(model, tokens).item()
    if not math.isfinite(loss):
        return ScoredAgain(example.example, None, tokens.targets, "the loss is not finite")
    return ScoredAgain(example.example, loss, tokens.targets)


# --- reference answers --------------------------------------------------------------------------------------------


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


# --- giving way ---------------------------------------------------------------------------------------------------


class GaveWay(Exception):
    """A forward pass was interrupted for other work."""


@contextmanager
def giving_way(model: PreTrainedModel, wanted_elsewhere: Callable[[], bool] | None) -> Iterator[None]:
    """Make a forward pass raise GaveWay before its next module once other work waits."""
    if wanted_elsewhere is None:
        yield
        return

    def look(*_: object) -> None:
        if wanted_elsewhere():
            raise GaveWay

    hooks = [module.register_forward_pre_hook(look) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
