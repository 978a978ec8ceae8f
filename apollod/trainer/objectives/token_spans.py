"""Tokenises texts, with the span of each token in the text."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from transformers import PreTrainedTokenizerBase

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
