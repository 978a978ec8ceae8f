"""Texts of other people under headings of a prompt, which they cannot imitate, and the JSON values in an answer."""

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

TRIES_MAX = 64
"""most brackets tried as the beginning of a JSON value"""

_OPENS = re.compile(r"[\[{]")
_DECODER = json.JSONDecoder(strict=False)


def under_headings(parts: Sequence[tuple[str, str]]) -> str:
    """The (heading, text) pairs as one text. Headings and the end carry a mark derived from the content."""
    return headed(blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest(), parts)


def headed(mark: str, parts: Sequence[tuple[str, str]]) -> str:
    """The (heading, text) pairs as one text whose headings and end carry this mark."""
    return "\n".join([*(f"--- {mark} {heading}\n{text}" for heading, text in parts), f"--- {mark} end"])


def json_values(text: str) -> Iterator[Any]:
    """JSON values in a text: the outermost arrays and objects."""
    at = 0
    for _ in range(TRIES_MAX):
        if (match := _OPENS.search(text, at)) is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, match.start())
            yield value
        except ValueError:
            at = match.start() + 1
        except RecursionError:
            return
