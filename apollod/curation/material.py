"""Texts of other people in a question to a model: each under a heading that nothing in them can pretend to be."""

import json
from collections.abc import Sequence
from hashlib import blake2b


def under_headings(parts: Sequence[tuple[str, str]]) -> str:
    """The (heading, text) pairs as one text. Headings and its end carry a mark that follows from the content."""
    mark = blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()
    return "\n".join([*(f"--- {mark} {heading}\n{text}" for heading, text in parts), f"--- {mark} end"])
