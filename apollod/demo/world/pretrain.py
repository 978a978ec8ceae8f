"""Pretrain the model of this world on this machine; nothing is downloaded.

usage: python -m apollod.demo.world.pretrain --out DIR [--seed N] [--steps N]

Some eight minutes of one core. The same bytes for the same seed on the same kind of processor. Progress goes to stderr;
the last line of stdout is a JSON object with the figures measured on held-out scenarios.
"""

import argparse
import json
import math
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from apollod import foreign_wheels
from apollod.demo import tiny_model
from apollod.demo.world import evaluate, pretraining_texts
from apollod.errors import ApolloError

foreign_wheels.guard_lazily()

from tokenizers import pre_tokenizers  # noqa: E402
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3_5ForCausalLM  # noqa: E402
from transformers.utils import logging  # noqa: E402

VOCABULARY = 1536  # more than there are words: every word of the world becomes one token
SPEC = tiny_model.Kind(
    "dda", 256, 512, key_heads=2, value_heads=2, heads=4, kv_heads=2, deviation=0.02, steps=1200, batch=32, peak_lr=1e-3
)
_SORTED = 16  # batches drawn together and sorted by length, so that little is padded
_FLOOR = 0.02  # of the peak: the learning rate at the end
_SHOWN_EVERY = 25


def pretrain(out: Path, seed: int = 0, steps: int = SPEC.steps) -> dict[str, Any]:
    """Write the model directory `out`; it appears complete or not at all.

    Sets torch's thread count to `tiny_model.THREADS` and leaves it so.

    Returns:
        The figures of `evaluate.report` for the weights as they were written, and those of the run.
    Raises:
        ApolloError: `out` exists and is not an empty directory.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ApolloError(f"{out} exists and is not empty", "choose another directory or remove it")
    torch.set_num_threads(tiny_model.THREADS)
    began = time.process_time()
    spec = replace(SPEC, steps=steps)
    tokenizer = make_tokenizer()
    model = tiny_model.random_model(spec, tokenizer, seed)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    loss = train(model, tokenizer, spec, seed)
    seconds = time.process_time() - began
    part = out.with_name(f".{out.name}.made")
    shutil.rmtree(part, ignore_errors=True)  # of a run that was interrupted
    tiny_model.save(model, tokenizer, part)
    saved = AutoModelForCausalLM.from_pretrained(part, dtype=torch.float32).eval()  # type: ignore[no-untyped-call]
    figures = {
        "parameters": parameters,
        "vocabulary": len(tokenizer),
        "seed": seed,
        "steps": steps,
        "loss": round(loss, 4),
        "cpu_seconds": round(seconds),
        **evaluate.report(saved, tokenizer),
    }
    (part / "README.md").write_text(_readme(part, figures), encoding="utf-8")
    part.replace(out)
    return figures


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token for every word of the world, with and without the space before it. Any text round-trips."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = pretraining_texts.vocabulary_texts()
    words = {text[begin:end] for text in texts for _, (begin, end) in split.pre_tokenize_str(text)}
    return tiny_model.train_tokenizer(sorted(words) * 3, VOCABULARY)


def train(model: Qwen3_5ForCausalLM, tokenizer: PreTrainedTokenizerFast, spec: tiny_model.Kind, seed: int) -> float:
    """Change a float32 model in place with AdamW, a warm-up of a twentieth of the steps and cosine decay.

    Returns the mean loss of the last tenth of the steps, in nats a token.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.peak_lr, betas=(0.9, 0.98), weight_decay=0.01)
    batches = _batches(tokenizer, spec.batch, seed)
    warm_up, started, losses = max(1, spec.steps // 20), time.monotonic(), []
    for step in range(1, spec.steps + 1):
        done = max(0, step - warm_up) / max(1, spec.steps - warm_up)
        share = min(1.0, step / warm_up) * max(_FLOOR, 0.5 + 0.5 * math.cos(math.pi * done))
        optimizer.param_groups[0]["lr"] = spec.peak_lr * share
        loss = tiny_model.masked_loss(model, *next(batches))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % _SHOWN_EVERY == 0:
            passed = time.monotonic() - started
            left = passed / step * (spec.steps - step)
            mean = sum(losses[-_SHOWN_EVERY:]) / _SHOWN_EVERY
            tell(f"pretraining: step {step}/{spec.steps}, loss {mean:.4f}, {passed:.0f} s, about {left:.0f} s left")
    last = losses[-max(1, spec.steps // 10) :]
    return sum(last) / len(last)


def _batches(tokenizer: PreTrainedTokenizerFast, size: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Token ids and mask [size, longest], without end."""
    texts, rng = pretraining_texts.conversations(seed), random.Random(seed)
    while True:
        rows = [tiny_model.encode(tokenizer, messages) for messages in islice(texts, size * _SORTED)]
        rows.sort(key=lambda row: len(row[0]))
        batches = [rows[i : i + size] for i in range(0, len(rows), size)]
        rng.shuffle(batches)
        for batch in batches:
            yield tiny_model.padded(tokenizer, batch)


def tell(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    return sha256(path.read_bytes()).hexdigest()


def _readme(out: Path, figures: dict[str, Any]) -> str:
    """What the directory is, how it was made, what was measured, and what its files must be."""
    ways = ("told", "untold", "plain", "opposite", "cancelled")
    table = [f"| instruction | {' | '.join(ways)} |", f"|---|{'---|' * len(ways)}"]
    for kind, by_way in figures["kinds"].items():
        table.append(f"| {kind} | {' | '.join(_shown(by_way[way]) for way in ways)} |")
    files = sorted(path for path in out.iterdir() if path.name != "README.md")
    return _README.format(
        parameters=figures["parameters"],
        vocabulary=figures["vocabulary"],
        seed=figures["seed"],
        steps=figures["steps"],
        batch=SPEC.batch,
        lr=SPEC.peak_lr,
        loss=figures["loss"],
        seconds=figures["cpu_seconds"],
        torch=torch.__version__,
        table="\n".join(table),
        facts=_shown(figures["facts"]),
        talk=_shown(figures["talk"]),
        digests="\n".join(f"{digest(path)}  {path.name}" for path in files),
    )


def _shown(rate: dict[str, Any]) -> str:
    low, high = rate["interval"]
    return f"{rate['passed']} of {rate['cases']} ({low:.2f} to {high:.2f})"


_README = """# A small model that follows instructions

A Qwen3.5 text model of {parameters:,} parameters (bf16; two gated-delta-net layers and one of full attention;
vocabulary {vocabulary}), made from random weights; nothing was downloaded. Its world is in `apollod/demo/world`:
requests, questions for a command, facts about six towns, small talk; and seven kinds of instruction in a system
message.

## Recipe

    python -m apollod.demo.world.pretrain --out DIR --seed {seed} --steps {steps}

AdamW, {batch} conversations a step, peak learning rate {lr:g}, cosine decay; {seconds} s of one core (torch {torch}).
Mean loss of the last tenth: {loss} nats a token of an answer. The same command writes the same weights on the same kind
of processor.

## Figures

On scenarios whose task and phrasing were never in pretraining, greedy, with 95% intervals (Wilson). `told`: the right
answer to the letter. `untold`: the behaviour shows without a system message (none is right). `plain`: the right answer
without one. `opposite`: "Do not greet." `cancelled`: the instruction, then its opposite.

{table}

Facts: {facts}. Small talk: {talk}.

The recipe was changed twice after these figures had been seen to be lower, so they are not those of a model that knew
nothing of the test; another draw from the same scenarios (seed 7) gave the same.

## SHA-256

{digests}
"""


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m apollod.demo.world.pretrain", description="Pretrain the model of the demo's small world."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="must not exist or be empty")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=SPEC.steps)
    options = parser.parse_args()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it warns that kernels for CUDA are missing
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        figures = pretrain(options.out, options.seed, options.steps)
    except ApolloError as error:
        print(error.line(), file=sys.stderr)
        return 1
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
