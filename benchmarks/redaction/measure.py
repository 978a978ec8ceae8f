"""Counts the results of redaction on a labelled sample."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apollod.core.rates import wilson
from benchmarks.redaction.draw import Sample

PIECE = 8
"""a secret is not redacted if so many consecutive characters of it are left"""
_PLACEHOLDER = re.compile(rb"\[redacted [^\]]{1,60}\]")

Redact = Callable[[bytes], tuple[bytes, Mapping[str, int]]]


class Share(NamedTuple):
    """`hits` of `total`, with the 95% interval of Wilson (1927)."""

    hits: int
    total: int

    def interval(self) -> tuple[float, float]:
        return wilson(self.hits, self.total)

    @property
    def value(self) -> float:
        return self.hits / self.total if self.total else 0.0


@dataclass
class Counted:
    """The counts over a sample."""

    found: dict[str, list[bool]] = field(default_factory=dict)
    """by kind of secret: was it removed completely?"""
    kept: dict[str, list[bool]] = field(default_factory=dict)
    """by kind of harmless text: is it unchanged?"""
    right: int = 0
    """placeholders that stand for a labelled secret, or a part of one"""
    wrong: int = 0
    """placeholders that stand for something else"""
    missed: list[Sample] = field(default_factory=list)
    alarms: list[tuple[Sample, str]] = field(default_factory=list)
    """samples and what was wrongly removed"""

    @property
    def recall(self) -> Share:
        return Share(sum(map(sum, self.found.values())), sum(map(len, self.found.values())))

    @property
    def specificity(self) -> Share:
        return Share(sum(map(sum, self.kept.values())), sum(map(len, self.kept.values())))

    @property
    def precision(self) -> Share:
        return Share(self.right, self.right + self.wrong)


def count(samples: Iterable[Sample], redact: Redact) -> Counted:
    """Redact every text and compare with its labels."""
    counted = Counted()
    for one in samples:
        data = one.text.encode()
        redacted, _ = redact(data)
        secrets = [secret.encode() for secret in one.secrets]
        for taken in taken_out(data, redacted):
            if any(piece in taken for secret in secrets for piece in _pieces(secret)):
                counted.right += 1
            else:
                counted.wrong += 1
                counted.alarms.append((one, taken.decode(errors="replace")))
        if secrets:
            found = not _left(data, redacted, secrets)
            counted.found.setdefault(one.kind, []).append(found)
            if not found:
                counted.missed.append(one)
        else:
            counted.kept.setdefault(one.kind, []).append(redacted == data)
    return counted


def taken_out(data: bytes, redacted: bytes) -> list[bytes]:
    """The parts of `data` that placeholders replaced, in order. Raises ValueError if anything else was changed."""
    literal = _PLACEHOLDER.split(redacted)
    if len(literal) == 1:
        return []
    match = re.fullmatch(b"(.+?)".join(re.escape(part) for part in literal), data, re.DOTALL)
    if match is None:
        raise ValueError("redaction changed more than it took out")
    return list(match.groups())


def _left(data: bytes, redacted: bytes, secrets: list[bytes]) -> bool:
    """Is a piece of a secret left that does not also stand elsewhere in the text, such as the name of a vendor?"""
    rest, left = data, _PLACEHOLDER.sub(b" ", redacted)
    for secret in secrets:
        rest = rest.replace(secret, b" ")
    return any(piece in left and piece not in rest for secret in secrets for piece in _pieces(secret))


def _pieces(secret: bytes) -> list[bytes]:
    return [secret[n : n + PIECE] for n in range(max(1, len(secret) - PIECE + 1))]
