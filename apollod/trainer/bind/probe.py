"""The trainer's half of an alignment: log-probabilities of a built-in text on its views, or digests of all of them."""

import time

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.bind.attach import Attached
from apollod.trainer.kernels.device_to_host import in_host_memory
from apollod.wire.manifest import tensor_digest
from apollod.wire.messages import Probe, Probed

PROBE_TOKENS = 256  # enough for a steady mean; one short prefill for the engine
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


def probe(attached: Attached, tokenizer: PreTrainedTokenizerBase, max_tokens: int, asked: Probe) -> Probed:
    """Answer `asked`. Reads the weights only. Raises RecordRefused where the text has too few tokens to compare."""
    started = time.perf_counter()
    if asked.digests:
        return Probed(asked.step, digests=digests(attached), seconds=time.perf_counter() - started)
    ids = tuple(tokenizer(PROBE_TEXT, add_special_tokens=False)["input_ids"])[: min(PROBE_TOKENS, max_tokens)]
    if len(ids) < 2:
        raise RecordRefused("the tokenizer makes no two tokens of the built-in text", "report this model's tokenizer")
    return Probed(asked.step, ids, score(attached.model, ids), seconds=time.perf_counter() - started)


@torch.no_grad()
def score(model: PreTrainedModel, ids: tuple[int, ...]) -> tuple[float, ...]:
    """Log-probability (natural, from float32 logits) of each of ids 1.. given those before it."""
    tokens = torch.tensor([ids], device=model.device)
    logits = model(input_ids=tokens, use_cache=False).logits[0, :-1].float()
    chosen = logits.log_softmax(-1).gather(1, tokens[0, 1:, None])
    return tuple(chosen[:, 0].tolist())


def digests(attached: Attached) -> dict[str, str]:
    """Checkpoint name -> digest of the tensor that the model multiplies with, in its dtype in memory."""
    held = attached.weights.views | {name: parameter.data for name, parameter in attached.trainable}
    return {
        name: tensor_digest(in_host_memory(t.detach()).view(-1).view(torch.uint8).numpy()) for name, t in held.items()
    }
