"""Reads the texts that trufflehog (AGPL) tests the patterns of its detectors with, from a checkout; nothing of it is
kept. `input` is a text, and `want` the secrets in it, none if this detector must find none."""

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.redaction.draw import Sample
from benchmarks.redaction.go_source import FUNCTIONS, Reader, Unknown, tokens

DETECTORS = "pkg/detectors"


class Tests(NamedTuple):
    secret: tuple[Sample, ...]
    refused: tuple[Sample, ...]
    """texts in which a detector must find nothing; not all are harmless"""
    unread: int
    """number of cases that are not constant expressions, or whose secret does not stand unchanged in the text"""


def read(checkout: Path) -> Tests:
    """Read all cases with `input` and `want`."""
    secret, refused, unread = list[Sample](), list[Sample](), 0
    for path in sorted((checkout / DETECTORS).rglob("*_test.go")):
        if "integration" in path.name:
            continue
        found = tokens(path.read_text())
        reader = Reader(found, FUNCTIONS, {})
        list(reader.assignments())
        detector = path.relative_to(checkout / DETECTORS).parts[0]
        for at, (_, text) in enumerate(found):
            if text != "input" or reader.text_at(at + 1) != ":":
                continue
            try:
                given, wanted = _case(reader, at)
            except (Unknown, TypeError):
                unread += 1
                continue
            if not wanted:
                refused.append(Sample(detector, given))
            elif all(one in given for one in wanted):
                secret.append(Sample(detector, given, tuple(dict.fromkeys(wanted))))
            else:
                unread += 1
    return Tests(tuple(dict.fromkeys(secret)), tuple(dict.fromkeys(refused)), unread)


def _case(reader: Reader, at: int) -> tuple[str, list[str]]:
    given, at = reader.value(at + 2)
    if reader.text_at(at) == "," and reader.text_at(at + 1) == "want" and reader.text_at(at + 2) == ":":
        wanted: Any
        wanted, _ = reader.value(at + 3)
        if isinstance(given, str) and isinstance(wanted, list) and all(isinstance(one, str) for one in wanted):
            return given, wanted
    raise Unknown("want")
