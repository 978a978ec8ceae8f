"""The trainer's half of an alignment: log-probabilities of a built-in text on its views, or digests of all of them."""

import time
from collections.abc import Callable

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from apollod.core.alignment.cost import TOKENS
from apollod.errors import RecordRefused
from apollod.trainer.bind.attach import Attached
from apollod.trainer.bind.giving_way import GaveWay, giving_way
from apollod.trainer.kernels.device_to_host import in_host_memory
from apollod.wire.manifest import tensor_digest
from apollod.wire.messages import Probe, Probed

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


def probe(
    attached: Attached,
    tokenizer: PreTrainedTokenizerBase,
    max_tokens: int,
    asked: Probe,
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
