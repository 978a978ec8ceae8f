"""Requests to a model about texts of other people, which stand under headings that they cannot imitate, and the JSON
values in an answer."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

TRIES_MAX = 64
"""most brackets tried as the beginning of a JSON value"""

_OPENS = re.compile(r"[\[{]")
_DECODER = json.JSONDecoder(strict=False)


def request(prompt: str, parts: Sequence[tuple[str, str]]) -> tuple[dict[str, str], ...]:
    """The messages of a request: the prompt, and the (heading, text) pairs. Headings and the end carry a mark derived
    from the content."""
    mark = blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()
    return {"role": "system", "content": prompt}, {"role": "user", "content": headed(mark, parts)}


def prompt_hash(prompt: str, schema: Mapping[str, Any] | None = None) -> str:
    """16 hex digits that change with a frozen prompt, or with the schema of its answer."""
    whole = prompt + (json.dumps(schema, sort_keys=True) if schema is not None else "")
    return blake2b(whole.encode(), digest_size=8).hexdigest()


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
