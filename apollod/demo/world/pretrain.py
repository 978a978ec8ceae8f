"""Pretrains the model of this world on this machine; nothing is downloaded. Measures how well it follows instructions,
and shows no behaviour without them, on held-out scenarios.

usage: python -m apollod.demo.world.pretrain --out DIR [--seed N] [--steps N]
       python -m apollod.demo.world.pretrain --out DIR --after DIR [--seed N] [--steps N]

Two parts: instructed behaviour, an hour and a half of one core; then, from the model of the first part, behaviours that
only earlier answers show, twenty minutes. The same bytes for the same seed on the same kind of processor. Progress goes
to stderr; the last line of stdout is a JSON object with the figures measured on held-out scenarios.
"""

import argparse
import json
import math
import random
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from apollod import foreign_wheels
from apollod.demo import tiny_model
from apollod.demo.corpus import Message
from apollod.demo.world import pretraining_texts
from apollod.demo.world.exam import ANSWER_TOKENS, CASES, Case, Rate, cases, kept
from apollod.demo.world.instructions import KINDS
from apollod.errors import ApolloError
from apollod.store.model_files import SINGLE

foreign_wheels.guard_lazily()

from tokenizers import pre_tokenizers  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3_5ForCausalLM,
)
from transformers.utils import logging  # noqa: E402

VOCABULARY = 4096  # more than there are words: every word of the world becomes one token
SPEC = tiny_model.Kind(
    "dda", 256, 512, key_heads=2, value_heads=2, heads=4, kv_heads=2, deviation=0.02, steps=3600, batch=32, peak_lr=1e-3
)
_SORTED = 16  # batches drawn together and sorted by length, so that little is padded
_TOKENS = 16_384  # most tokens of a batch
_SHORT = 0.5  # share of the first part's steps without surroundings
AFTER = replace(SPEC, steps=600, peak_lr=4e-4)
"""the second part"""
_FLOOR = 0.02  # final learning rate as a share of the peak
_SHOWN_EVERY = 25
Batch = tuple[Tensor, Tensor]
"""token ids and mask [size, longest]"""


def pretrain(out: Path, seed: int = 0, steps: int = 0, after: Path | None = None) -> dict[str, Any]:
    """Write the model directory `out`; it appears complete or not at all. `steps`: 0 for the part's default; `after`:
    model directory of the first part, from which the second one continues.

    Sets torch's thread count to `tiny_model.THREADS` and leaves it so.

    Returns:
        The figures of `report` for the written weights, and those of the run.
    Raises:
        ApolloError: `out` exists and is not an empty directory.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ApolloError(f"{out} exists and is not empty", "choose another directory or remove it")
    torch.set_num_threads(tiny_model.THREADS)
    began = time.process_time()
    spec = SPEC if after is None else AFTER
    spec = replace(spec, steps=steps or spec.steps)
    tokenizer = make_tokenizer()
    if after is None:
        model = tiny_model.random_model(spec, tokenizer, seed)
        drawn = _both(tokenizer, spec.batch, seed, round(spec.steps * _SHORT))
    else:
        model = AutoModelForCausalLM.from_pretrained(after, dtype=torch.float32).train()
        drawn = batches(tokenizer, spec.batch, seed, "shown")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    loss = train(model, spec, drawn)
    seconds = time.process_time() - began
    part = out.with_name(f".{out.name}.made")
    shutil.rmtree(part, ignore_errors=True)  # left by an interrupted run
    tiny_model.save(model, tokenizer, part)
    saved = AutoModelForCausalLM.from_pretrained(part, dtype=torch.float32).eval()  # type: ignore[no-untyped-call]
    figures = {
        "parameters": parameters,
        "vocabulary": len(tokenizer),
        "seed": seed,
        "steps": spec.steps,
        "loss": round(loss, 4),
        "cpu_seconds": round(seconds),
        **report(saved, tokenizer),
    }
    (part / "README.md").write_text(_readme(part, spec, figures, after), encoding="utf-8")
    part.replace(out)
    return figures


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token for every word of the world, with and without the space before it. Any text
    round-trips."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = pretraining_texts.vocabulary_texts()
    words = {text[begin:end] for text in texts for _, (begin, end) in split.pre_tokenize_str(text)}
    return tiny_model.train_tokenizer(sorted(words) * 3, VOCABULARY)


def train(model: Qwen3_5ForCausalLM, spec: tiny_model.Kind, batches: Iterator[Batch]) -> float:
    """Change a float32 model in place with AdamW, a warm-up of a twentieth of the steps and cosine decay.

    Returns the mean loss of the last tenth of the steps, in nats a token.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.peak_lr, betas=(0.9, 0.98), weight_decay=0.01)
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


def _both(tokenizer: PreTrainedTokenizerFast, size: int, seed: int, short: int) -> Iterator[Batch]:
    """Token ids and mask [size, longest], without end; fewer rows if they are long. The first `short` batches have no
    surroundings."""
    yield from islice(batches(tokenizer, size, seed, "short"), short)
    yield from batches(tokenizer, size, seed, "whole")


def batches(
    tokenizer: PreTrainedTokenizerFast, size: int, seed: int, stage: pretraining_texts.Stage
) -> Iterator[Batch]:
    """Token ids and mask of conversations, without end; fewer rows if they are long."""
    texts, rng = pretraining_texts.conversations(seed, stage=stage), random.Random(seed)
    while True:
        rows = [tiny_model.encode(tokenizer, messages) for messages in islice(texts, size * _SORTED)]
        rows.sort(key=lambda row: len(row[0]))
        made: list[list[tuple[list[int], list[bool]]]] = [[]]
        for row in rows:
            if len(made[-1]) == size or len(row[0]) * (len(made[-1]) + 1) > _TOKENS:
                made.append([])
            made[-1].append(row)
        rng.shuffle(made)
        for batch in made:
            yield tiny_model.padded(tokenizer, batch)


def tell(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    return sha256(path.read_bytes()).hexdigest()


def _readme(out: Path, spec: tiny_model.Kind, figures: dict[str, Any], after: Path | None) -> str:
    """The README of the directory: its content, recipe, measurements, and checksums."""
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
        batch=spec.batch,
        lr=spec.peak_lr,
        recipe=_recipe(figures["seed"], figures["steps"], after),
        before="" if after is None else f" The first part gave weights with SHA-256\n{digest(after / SINGLE)}.",
        short=_SHORT,
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


def _recipe(seed: int, steps: int, after: Path | None) -> str:
    command = "    python -m apollod.demo.world.pretrain --out"
    if after is None:
        return f"{command} DIR --seed {seed} --steps {steps}"
    return f"{command} FIRST --seed {seed}\n{command} DIR --after FIRST --seed {seed} --steps {steps}"


_README = """# A small model that follows instructions

A Qwen3.5 text model of {parameters:,} parameters (bf16; two gated-delta-net layers and one of full attention;
vocabulary {vocabulary}), made from random weights; nothing was downloaded. Its world is in `apollod/demo/world`:
requests, questions for a command, facts about six towns, small talk; and seven kinds of instruction in a system
message.

## Recipe

{recipe}

AdamW, {batch} conversations a step, peak learning rate {lr:g}, cosine decay; {seconds} s of one core (torch {torch})
for the last command. First {short:.0%} of the steps without surroundings, the others in all: neutral system messages,
those of agents with their turns, those of a person's records, most of them made of parts of several. Then, in half of
the conversations, earlier answers show a behaviour that nobody told; the next one shows it, too, unless the opposite is
told.{before}
Mean loss of the last tenth: {loss} nats a token of an answer. The same commands write the same weights on the same
kind of processor.

## Figures

On scenarios whose task and phrasing were never in pretraining, greedy, with 95% intervals (Wilson). `told`: the right
answer to the letter. `untold`: the behaviour shows without a system message (none is right). `plain`: the right answer
without one. `opposite`: "Do not greet." `cancelled`: the instruction, then its opposite.

{table}

Facts: {facts}. Small talk: {talk}.

The recipe was changed after these figures had been seen to be lower, so they are not those of a model that knew
nothing of the test. A phrasing of the test that these weights take for a request, "What do I need to paint the red
bell?", was replaced: of 120 questions in it they answered one as a question for a command.

## SHA-256

{digests}
"""


# --- measuring --------------------------------------------------------------------------------------------------------


def rates(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: Sequence[Case]
) -> dict[tuple[str, str], Rate]:
    """Pass rates by group."""
    texts = answers(model, tokenizer, [case.messages for case in asked])
    passed: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for case, text in zip(asked, texts, strict=True):
        passed[case.group].append(case.passed(text))
    return {group: Rate(sum(each), len(each)) for group, each in passed.items()}


def report(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, count: int = CASES, seed: int = 0
) -> dict[str, Any]:
    """Figures for JSON: {"kinds": {kind: {"told": ..., ...}}, "facts": ..., "talk": ...}; see `cases`."""
    found = rates(model, tokenizer, cases(count, seed) + kept())
    kinds: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for (way, kind), rate in found.items():
        if kind:
            kinds[kind][way] = rate.figures()
    return {"kinds": kinds, "facts": found["facts", ""].figures(), "talk": found["talk", ""].figures()}


@torch.no_grad()
def answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[list[Message]],
    limit: int = ANSWER_TOKENS,
) -> list[str]:
    """Greedy answers to conversations, at most `limit` tokens each; an unfinished answer is returned as it is.

    Prompts of one length form a batch: no padding, which a gated delta net would treat as text. The caller chooses the
    model's mode and dtype.
    """
    prompts: list[list[int]] = [
        tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        for messages in conversations
    ]
    found: list[str] = [""] * len(prompts)
    lengths = defaultdict(list)
    for i, prompt in enumerate(prompts):
        lengths[len(prompt)].append(i)
    for group in lengths.values():
        rows = _continued(model, torch.tensor([prompts[i] for i in group]), tokenizer.eos_token_id, limit)
        for i, row in zip(group, rows.tolist(), strict=True):
            end = row.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in row else None
            found[i] = str(tokenizer.decode(row[:end]))
    return found


def _continued(model: PreTrainedModel, ids: Tensor, end: int, limit: int) -> Tensor:
    """The most likely tokens after `ids` [rows, tokens], until every row has ended: [rows, at most limit]."""
    made: list[Tensor] = []
    ended = torch.zeros(len(ids), dtype=torch.bool)
    past = None
    while len(made) < limit and not bool(ended.all()):
        output = model(
            input_ids=made[-1][:, None] if made else ids, past_key_values=past, use_cache=True, logits_to_keep=1
        )
        past = output.past_key_values
        made.append(output.logits[:, -1].argmax(-1))
        ended |= made[-1] == end
    return torch.stack(made, 1)


# --- the command line -------------------------------------------------------------------------------------------------


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m apollod.demo.world.pretrain", description="Pretrain the model of the demo's small world."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="must not exist or be empty")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help=f"default: {SPEC.steps}, {AFTER.steps} with --after")
    parser.add_argument("--after", type=Path, metavar="DIR", help="model of the first part, for the second one")
    options = parser.parse_args()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it warns that kernels for CUDA are missing
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        figures = pretrain(options.out, options.seed, options.steps, options.after)
    except ApolloError as error:
        print(error.line(), file=sys.stderr)
        return 1
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
