"""Test data of other tools that look for secrets, as sets on which redaction is measured.

Half of the detectors and rules, by a hash of the name, may be looked at (`--misses seen`); the others are only counted.
"""

import tomllib
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from apollod.curation.redaction import Rules
from benchmarks.redaction import gitleaks_tests, trufflehog_tests
from benchmarks.redaction.draw import Sample

Sets = dict[str, list[Sample]]
HARMLESS = "harmless"


def sets(gitleaks: Path | None, trufflehog: Path | None, seed: int) -> Sets:
    """The sets by name; those without a checkout are left out.

    Texts refused by gitleaks are harmless if it refuses them with all its rules, too, and if they contain no key that
    was drawn with a fault, such as one character too few: `refused` has them all.
    """
    found: Sets = {}
    if trufflehog:
        found["trufflehog"] = list(trufflehog_tests.read(trufflehog).secret)
    if gitleaks:
        tests = gitleaks_tests.read(gitleaks, seed)
        rules = Rules([tomllib.loads((gitleaks / "config/gitleaks.toml").read_text())])
        found["gitleaks, in its templates"], found["gitleaks, bare"] = tests.in_templates(), tests.alone()
        found["gitleaks, as a message"] = tests.pasted()
        found[HARMLESS] = [
            Sample(rule, text) for rule, text in tests.harmless if not rules.spans(text.encode("utf-8", "replace"))
        ]
        found["refused"] = [Sample(rule, text) for rule, text in tests.refused]
    return found


def half(samples: Iterable[Sample], number: int) -> list[Sample]:
    """The samples whose detectors and rules are in this half."""
    return [one for one in samples if blake2b(one.kind.encode(), digest_size=1).digest()[0] % 2 == number]
