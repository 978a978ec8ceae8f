"""Splits texts into words for comparisons: case, white space and punctuation do not count, mathematical signs do. In
scripts without spaces, a character is a word."""

import re
from collections.abc import Sequence

_NO_SPACES = "\u3040-\u30ff\u3400-\u9fff"
_words = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+|[-+*/=<>%^$\u20ac\u00a3]").findall

Shingle = tuple[str, ...]


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(_words(text.casefold()))


def shingles_of(words: Sequence[str], size: int) -> frozenset[Shingle]:
    """All runs of `size` words; one run of all words if there are fewer."""
    return frozenset(tuple(words[place : place + size]) for place in range(max(1, len(words) - size + 1)))
