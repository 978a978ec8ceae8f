"""Puts texts of other people into a prompt, each under a heading that they cannot imitate."""

import json
from collections.abc import Sequence
from hashlib import blake2b


def under_headings(parts: Sequence[tuple[str, str]]) -> str:
    """The (heading, text) pairs as one text. Headings and the end carry a mark derived from the content."""
    mark = blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()
    return "\n".join([*(f"--- {mark} {heading}\n{text}" for heading, text in parts), f"--- {mark} end"])
