"""An encoded example: token ids, the mask of learned tokens, and further columns for the loss; and the tokens of a
text, with the span of each in it."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise

import torch
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.model.kept import CHUNK

IDS = "ids"
"""The column of token ids, int64 [targets, k] and different ones in each row, whose log-probabilities a loss is given
in place of those of the learned tokens"""

TEMPERATURE = "temperature"
"""The column of sampling temperatures, float32 [targets]: a loss is given log-probabilities at these, of logits / T"""

_WITH_COLUMNS = b"apollod.columns"
"""Separates digests with columns or several sequences from those of ids and mask alone, which journals hold."""


@dataclass(frozen=True)
class Tokens:
    """An encoded example: one sequence, or several that one loss couples, back to back (a pair of answers, say).

    ids      tokens of all sequences
    mask     `mask[i]`: predicting `ids[i]` is learned; never true for the first token of a sequence
    cut      tokens that were dropped from the left of the prompt
    columns  what an objective needs besides: name -> float32 ("f") or int64 ("q") values of each learned token, in
             order; a multiple of their number is a matrix, one row per learned token (a teacher's likeliest tokens).
             The one named `IDS` says whose log-probabilities the loss is given
    starts   where in `ids` each sequence begins
    left_out turns that were to be learned and are not: the chat template shows them otherwise than they were written
    changes  changes of the context of answers, so that it fits and the chat template accepts it: see
             "What was changed so that an answer can be learned" in docs/formats.md
    """

    ids: list[int]
    mask: list[bool]
    cut: int = 0
    columns: Mapping[str, array[float] | array[int]] = field(default_factory=dict)
    starts: tuple[int, ...] = (0,)
    left_out: int = 0
    changes: Mapping[str, int] = field(default_factory=dict)

    @property
    def targets(self) -> int:
        """Number of learned tokens."""
        return sum(self.mask)

    @property
    def room(self) -> int:
        """Tokens for which it needs memory: several sequences are one batch, each as long as the longest in whole
        chunks, as a gated delta net pads them (model/kept.py)."""
        if len(self.starts) == 1:
            return len(self.ids)
        longest = max(len(ids) for ids, _ in self.sequences())
        return len(self.starts) * -(-longest // CHUNK) * CHUNK

    @property
    def learned(self) -> list[int]:
        """ids of the learned tokens."""
        return [token for token, mask in zip(self.ids, self.mask, strict=True) if mask]

    def sequences(self) -> list[tuple[list[int], list[bool]]]:
        """ids and mask of each sequence."""
        ends = (*self.starts[1:], len(self.ids))
        return [(self.ids[a:b], self.mask[a:b]) for a, b in zip(self.starts, ends, strict=True)]

    def tensors(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The columns as tensors, [targets] or [targets, k]."""
        count = self.targets
        made = {}
        for name, values in self.columns.items():
            tensor = torch.tensor(values, dtype=torch.float32 if values.typecode == "f" else torch.int64, device=device)
            made[name] = tensor if len(values) == count else tensor.view(count, -1)
        return made

    def asked(self) -> torch.Tensor | None:
        """The column `IDS`, int64 [targets, k] in host memory; None without it."""
        if IDS not in self.columns:
            return None
        return torch.tensor(self.columns[IDS], dtype=torch.int64).view(self.targets, -1)

    def temperatures(self) -> torch.Tensor | None:
        """The column `TEMPERATURE`, float32 [targets] in host memory; None without it."""
        return torch.tensor(self.columns[TEMPERATURE]) if TEMPERATURE in self.columns else None

    def check_vocabulary(self, size: int) -> None:
        """Raise RecordRefused for an id outside of a vocabulary of this size."""
        highest = max(max(self.ids), max(self.columns.get(IDS, (0,))))
        if highest >= size or min(self.columns.get(IDS, (0,))) < 0:
            raise RecordRefused(
                f"it has token {highest}, the model has {size} tokens", "it was made with another model: leave it out"
            )

    def digest(self) -> str:
        """32 hex digits of BLAKE2b-128 over ids (u32, little-endian), mask (a byte each), and all columns and starts,
        if there are any columns or more than one sequence."""
        ids = array("I", self.ids)  # 4 bytes on every platform that torch runs on, all little-endian
        data = ids.tobytes() + bytes(self.mask)
        if not self.columns and self.starts == (0,):
            return blake2b(data, digest_size=16).hexdigest()
        hashed = blake2b(data, digest_size=16, person=_WITH_COLUMNS)
        hashed.update(array("q", [len(self.ids), len(self.starts), *self.starts]).tobytes())
        for name, values in sorted(self.columns.items()):
            label = f"{name}:{values.typecode}".encode()
            hashed.update(array("q", [len(label), len(values)]).tobytes() + label + values.tobytes())
        return hashed.hexdigest()

    def check(self) -> None:
        """Raise RecordRefused unless the example fits any loss."""
        if not self.targets:
            raise RecordRefused("no token to learn", "an answer must not be empty, nor every weight 0")
        if len(self.mask) != len(self.ids) or self.starts[0] != 0 or list(self.starts) != sorted(set(self.starts)):
            raise RecordRefused(
                f"ids {len(self.ids)}, mask {len(self.mask)} and starts {self.starts} do not fit", "report this"
            )
        for ids, mask in self.sequences():
            if not any(mask):
                raise RecordRefused("one of its sequences has no token to learn", "an answer must not be empty")
            if mask[0]:
                raise RecordRefused(
                    "the first token of a sequence cannot be learned: nothing comes before it", "report this"
                )
            assert len(ids) == len(mask)
        for name, values in self.columns.items():
            if not values or len(values) % self.targets:
                raise RecordRefused(
                    f"{name} has {len(values)} values for {self.targets} learned tokens", "give one for each"
                )
            if values.typecode == "f" and not all(map(math.isfinite, values)):
                raise RecordRefused(f"{name} holds values that are no numbers", "leave the example out")


# --- tokens of a text -------------------------------------------------------------------------------------------------

Span = tuple[int, int]
"""Characters [start, end) of a rendered conversation."""


def decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of tokens, special ones included."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def pieces(tokenizer: PreTrainedTokenizerBase, text: str, starts: list[int]) -> tuple[list[int], list[Span]]:
    """ids and offsets of a text in which no token crosses one of `starts`, where the served model begins to write."""
    ids, offsets = encoded(tokenizer, text)
    starts = sorted(starts)
    crossed = {starts[at] for a, b in offsets if (at := bisect_right(starts, a)) < len(starts) and starts[at] < b}
    if not crossed:
        return ids, offsets
    ids, offsets = [], []
    for begin, end in pairwise([0, *sorted(crossed), len(text)]):
        piece, places = encoded(tokenizer, text[begin:end])
        ids += piece
        offsets += [(begin + a, begin + b) for a, b in places]
    return ids, offsets


def encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[Span]]:
    """ids and offsets, without special tokens around them."""
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(found["input_ids"]), list(found["offset_mapping"])


def end_of_turn(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """The special token at the end of a text; empty if it ends with ordinary text."""
    text = text.rstrip()
    return max((token for token in tokenizer.get_added_vocab() if text.endswith(token)), key=len, default="")


def shared_start(one: str, other: str) -> int:
    """Length of the common beginning of two texts."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
