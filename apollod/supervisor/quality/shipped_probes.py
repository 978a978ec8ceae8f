"""The probes that come with apollod, by level of difficulty: 1 is easy, 2 and 3 are hard enough to show a drop of
larger models.

A released file does not change, since baselines use its items: new ones come in a new file.
"""

import json
from importlib.resources import files

import msgspec

from apollod.curation.probes.probe_item import Probe
from apollod.curation.probes.probe_lines import read_probes

EASY, HARDER, DOCUMENTS = "probes.jsonl", "levels.jsonl", "documents.jsonl"
PLACE = "apollod/data/"
"""prefix of their places in messages"""
LEVELS = 3


def shipped(level: int) -> list[Probe]:
    """Probes that ship, up to this level (0: none). Blocking."""
    found = _read(EASY) if level >= 1 else []
    if level < 2:
        return found
    texts = {one["name"]: one["text"] for one in map(json.loads, _lines(DOCUMENTS))}
    return found + [_with_text(probe, texts) for probe in _read(HARDER) if level_of(probe) <= level]


def is_shipped(probe: Probe) -> bool:
    """True if it comes with apollod."""
    return probe.place.rpartition(":")[0] in (PLACE + EASY, PLACE + HARDER)


def level_of(probe: Probe) -> int:
    """Its level; the group name ends with it if it is above 1."""
    return int(probe.group.rpartition("-")[2]) if probe.place.startswith(PLACE + HARDER) else 1


def _with_text(probe: Probe, texts: dict[str, str]) -> Probe:
    """Insert the long text that a question is about: the file stores it once, and the system prompt of the question
    names it."""
    first, *others = probe.messages
    if first["role"] != "system":
        return probe
    return msgspec.structs.replace(probe, messages=({**first, "content": texts[first["content"]]}, *others))


def _read(name: str) -> list[Probe]:
    return read_probes(_lines(name), PLACE + name)


def _lines(name: str) -> list[bytes]:
    return (files("apollod") / "data" / name).read_bytes().splitlines()
