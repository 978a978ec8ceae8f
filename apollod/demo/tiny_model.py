"""Makes a small Qwen3.5 text model and its tokenizer on this machine; nothing is downloaded.

usage: python -m apollod.demo.tiny_model OUT_DIR [--kind demo|random] [--seed N]

`demo` is pretrained for some 40 seconds on one core: it speaks short English sentences and says so when it does not
know something. `random` has random weights and is written in a second. Both are hybrids of gated-delta-net and
full-attention layers, in bf16, and the same bytes for the same kind and seed on the same kind of processor. Progress
goes to stderr.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from apollod import foreign_wheels
from apollod.demo import corpus
from apollod.errors import ApolloError

foreign_wheels.guard_lazily()

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3_5ForCausalLM, Qwen3_5TextConfig  # noqa: E402
from transformers.utils import logging  # noqa: E402

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCABULARY = 896
POSITIONS = 2048
THREADS = 1  # sums depend on the number of threads, so a reproducible build fixes it

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Kind:
    """Sizes of a model, and how it is pretrained.

    layers       one letter a layer: "d" gated delta net, "a" full attention
    hidden       width of the residual stream
    inner        width inside the MLP
    key_heads    of a gated delta net, 128 wide (vLLM's CPU kernel takes no other width); as for value_heads
    heads        of full attention, 64 wide; kv_heads of them for keys and values
    deviation    standard deviation of the initial matrices
    steps        of pretraining, with `batch` conversations each; 0 leaves the weights random
    peak_lr      of AdamW. Low, because a model pretrained faster learns new facts with more damage to the old ones
    """

    layers: str
    hidden: int
    inner: int
    key_heads: int
    value_heads: int
    heads: int
    kv_heads: int
    deviation: float
    steps: int = 0
    batch: int = 8
    peak_lr: float = 5e-4


KINDS = {
    "demo": Kind("dda", 256, 512, key_heads=2, value_heads=2, heads=4, kv_heads=2, deviation=0.02, steps=300),
    "random": Kind("ddda", 128, 256, key_heads=1, value_heads=2, heads=2, kv_heads=1, deviation=0.05),
    # for benchmarks: matrices large enough for the memory and time of a real model's layers
    "wide": Kind("ddda", 1024, 2816, key_heads=4, value_heads=8, heads=16, kv_heads=4, deviation=0.02),
}


def build(out: Path, kind: str = "demo", seed: int = 0) -> None:
    """Write the model directory `out`; it appears complete or not at all.

    Sets torch's thread count to `THREADS` while it works. torch's global random state is left as it was.

    Raises ApolloError if `out` exists and is not an empty directory.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ApolloError(f"{out} exists and is not empty", "choose another directory or remove it")
    spec, threads = KINDS[kind], torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        tokenizer = make_tokenizer()
        model = random_model(spec, tokenizer, seed)
        if spec.steps:
            _pretrain(model, tokenizer, spec, seed)
        save(model, tokenizer, out)
    finally:
        torch.set_num_threads(threads)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the demo model, with `VOCABULARY` tokens."""
    return train_tokenizer(corpus.vocabulary_texts(), VOCABULARY)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with at most `vocabulary` tokens, trained on texts. Any text round-trips."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            show_progress=False,
            special_tokens=[PAD, START, END],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        ),
    )
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        clean_up_tokenization_spaces=False,
        model_max_length=POSITIONS,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def random_model(spec: Kind, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3_5ForCausalLM:
    """The model in float32 with random weights; vectors (norms, dt_bias, A_log) are also moved off their constant
    start."""
    config = Qwen3_5TextConfig(
        vocab_size=len(tokenizer),
        hidden_size=spec.hidden,
        intermediate_size=spec.inner,
        num_hidden_layers=len(spec.layers),
        layer_types=[{"d": "linear_attention", "a": "full_attention"}[layer] for layer in spec.layers],
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=64,
        linear_num_key_heads=spec.key_heads,
        linear_num_value_heads=spec.value_heads,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        max_position_embeddings=POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        initializer_range=spec.deviation,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3_5ForCausalLM(config)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter), alpha=spec.deviation)
    return model


def _pretrain(model: Qwen3_5ForCausalLM, tokenizer: PreTrainedTokenizerFast, spec: Kind, seed: int) -> None:
    """Train on generated conversations, in float32 with AdamW, a warm-up of a tenth of the steps and cosine decay."""
    stream = corpus.conversations(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.peak_lr, betas=(0.9, 0.98), weight_decay=0.01)
    warm_up, started = spec.steps // 10, time.monotonic()
    for step in range(1, spec.steps + 1):
        decay = 0.5 + 0.5 * math.cos(math.pi * max(0, step - warm_up) / (spec.steps - warm_up))
        optimizer.param_groups[0]["lr"] = spec.peak_lr * min(1.0, step / warm_up) * max(decay, 0.05)
        ids, mask = batch(tokenizer, list(islice(stream, spec.batch)))
        loss = masked_loss(model, ids, mask)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0:
            print(
                f"pretraining: step {step}/{spec.steps}, loss {loss.item():.3f}, {time.monotonic() - started:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def batch(tokenizer: PreTrainedTokenizerFast, conversations: list[list[corpus.Message]]) -> tuple[Tensor, Tensor]:
    """Token ids and mask [batch, longest]: true for the tokens of the assistant's turns up to and with `END`."""
    return padded(tokenizer, [encode(tokenizer, conversation) for conversation in conversations])


def padded(tokenizer: PreTrainedTokenizerFast, rows: list[tuple[list[int], list[bool]]]) -> tuple[Tensor, Tensor]:
    """Rows of `encode` as ids and mask [rows, longest]."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
    mask = torch.zeros((len(rows), longest), dtype=torch.bool)
    for i, (row, learned) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = torch.tensor(learned)
    return ids, mask


def encode(tokenizer: PreTrainedTokenizerFast, conversation: list[corpus.Message]) -> tuple[list[int], list[bool]]:
    """Token ids of a conversation, and for each true if it is learned: those of answers without weight 0."""
    ids: list[int] = []
    learned: list[bool] = []
    for message in conversation:
        answer = message["role"] == "assistant" and message.get("weight") != 0
        head, body, tail = f"{START}{message['role']}\n", message["content"] + END, "\n"
        for text, learn in ((head, False), (body, answer), (tail, False)):
            part = tokenizer.encode(text)
            ids += part
            learned += [learn] * len(part)
    return ids, learned


def masked_loss(model: Qwen3_5ForCausalLM, ids: Tensor, mask: Tensor) -> Tensor:
    """Mean cross-entropy in nats of the masked tokens; ids and mask [batch, tokens]. Logits exist for these tokens
    only."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    targets = mask[:, 1:]
    return functional.cross_entropy(model.lm_head(hidden[:, :-1][targets]), ids[:, 1:][targets])


def save(model: Qwen3_5ForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write weights in bf16, configuration and tokenizer, and rename the directory into place."""
    model.bfloat16()
    model.config.dtype = torch.bfloat16
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    part.replace(out)


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m apollod.demo.tiny_model", description="Make a small Qwen3.5 model."
    )
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="directory to write; must not exist or be empty")
    parser.add_argument("--kind", choices=sorted(KINDS), default="demo")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it warns that kernels for CUDA are missing
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        build(options.out, options.kind, options.seed)
    except ApolloError as error:
        print(error.line(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
