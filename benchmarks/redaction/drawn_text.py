"""Random texts that match a regular expression, like reggen's in the tests of gitleaks."""

import random
import re
from re import _constants as of  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_MORE = 10
"""most repetitions of an unbounded repeat"""
_CLASSES = {
    of.CATEGORY_WORD: "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
    of.CATEGORY_DIGIT: "0123456789",
    of.CATEGORY_SPACE: " ",
}


def drawn(rng: random.Random, pattern: str) -> str:
    """A text that matches `pattern`."""
    return _of(rng, parser.parse(re.sub(r"\(\?i\)", "", pattern).replace(r"\z", r"\Z")))


def _of(rng: random.Random, parts: Any) -> str:
    return "".join(_part(rng, kind, value) for kind, value in parts)


def _part(rng: random.Random, kind: Any, value: Any) -> str:
    if kind is of.LITERAL:
        return chr(value)
    if kind is of.IN:
        return rng.choice(_members(value))
    if kind in (of.MAX_REPEAT, of.MIN_REPEAT):
        low, high, inner = value
        count = rng.randint(low, low + _MORE if high is of.MAXREPEAT else high)
        return "".join(_of(rng, inner) for _ in range(count))
    if kind is of.SUBPATTERN:
        return _of(rng, value[3])
    if kind is of.BRANCH:
        return _of(rng, rng.choice(value[1]))
    if kind is of.AT:
        return ""
    raise ValueError(f"{kind} is not drawn")


def _members(value: Any) -> str:
    members = ""
    for kind, inner in value:
        if kind is of.LITERAL:
            members += chr(inner)
        elif kind is of.RANGE:
            members += "".join(map(chr, range(inner[0], inner[1] + 1)))
        elif kind is of.CATEGORY:
            members += _CLASSES[inner]
        else:
            raise ValueError(f"{kind} is not drawn")
    return members
