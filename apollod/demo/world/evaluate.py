"""Measures how well a model of this world follows instructions, and shows no behaviour without them, on held-out
scenarios."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from apollod.demo.corpus import Message
from apollod.demo.world.exam import ANSWER_TOKENS, CASES, Case, Rate, cases, kept
from apollod.demo.world.instructions import KINDS

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def rates(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", asked: Sequence[Case]
) -> dict[tuple[str, str], Rate]:
    """Pass rates by group."""
    texts = answers(model, tokenizer, [case.messages for case in asked])
    passed: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for case, text in zip(asked, texts, strict=True):
        passed[case.group].append(case.passed(text))
    return {group: Rate(sum(each), len(each)) for group, each in passed.items()}


def report(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", count: int = CASES, seed: int = 0
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
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
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


def _continued(model: "PreTrainedModel", ids: Tensor, end: int, limit: int) -> Tensor:
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
