"""What of a probe is in an example, word for word or nearly, and what only looks like it."""

import json
from importlib.resources import files
from typing import Any

import pytest

from apollod.curation.probes.leaks import Leaks
from apollod.curation.probes.probe_item import Probe
from apollod.curation.probes.probe_lines import probe_set, read_probes
from apollod.wire.records import parse_line

TEXT = (
    "The keeper of the archive wore two pairs of glasses, one for the distance and one for the small brown ink that "
    "clerks had used when paper was dear. He said that every letter in the corridor had once been urgent, and that "
    "he liked to let them rest. On Fridays he read one aloud, to nobody, before he locked the door behind him."
)
PROBES = [
    {"kind": "text", "text": TEXT, "id": "archive"},
    {"kind": "exact", "id": "capital", "expect": "Paris", "messages": [
        {"role": "system", "content": "Answer in one word, please, whatever the question."},
        {"role": "user", "content": "What is the capital of France?"}]},
    {"kind": "regex", "id": "short", "expect": "x", "messages": [{"role": "user", "content": "And now?"}]},
    {"kind": "exact", "id": "motto", "expect": "nine small lamps are brighter than one large fire",
     "messages": [{"role": "user", "content": "What does the sign at the lamp shop say?"}]},
]  # fmt: skip


def probes() -> tuple[Probe, ...]:
    return probe_set(read_probes([json.dumps(one).encode() for one in PROBES], "p.jsonl"))


def found(**record: Any) -> str:
    """What of the first probe that is in it."""
    return next(iter(Leaks(probes()).of(parse_line(json.dumps(record).encode()).canonical).values()), "")


def chat(*said: str) -> dict[str, Any]:
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]}


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"text": "Once upon a time: " + TEXT + " The end."}, "archive"),
        ({"text": TEXT.replace("archive", "museum").replace("Fridays", "Sundays").upper()}, "% of the words of"),
        ({"text": " ".join(TEXT.split()[10:36])}, "a part of the words of the probe archive"),
        (chat("Read this: " + TEXT, "I did."), "archive"),
        (chat("what is the capital of france", "Paris"), "capital (p.jsonl:2)"),
        ({"prompt": "Q: What is the\ncapital of  France? A:", "completion": "Paris"}, "capital"),
        (chat("Hello", "Hi", "And now?", "Nothing."), "short"),
        (chat("Tell me something.", "Nine small lamps are brighter than one large fire!"), "the answer to the probe"),
    ],
)
def test_a_probe_in_an_example_is_named(record: dict[str, Any], named: str) -> None:
    assert named in found(**record)


@pytest.mark.parametrize(
    "record",
    [
        chat("What is the capital of Spain?", "Madrid"),
        chat("Answer in one word, please, whatever the question.", "Paris"),
        chat("And now? I have no idea.", "Nor have I."),
        {"text": "The keeper of the archive wore two pairs of glasses, and on Fridays he read one letter aloud."},
    ],
)
def test_what_only_has_words_of_a_probe_is_none(record: dict[str, Any]) -> None:
    assert not found(**record)


def test_nothing_that_comes_with_apollod_to_be_learned_is_a_probe_that_comes_with_it() -> None:
    data = files("apollod") / "data"
    known = Leaks(probe_set(read_probes((data / "probes.jsonl").read_bytes().splitlines(), "probes.jsonl")))
    lines = (data / "sample.jsonl").read_bytes().splitlines()
    assert lines and not [leak for line in lines if (leak := known.of(parse_line(line).canonical))]


def test_all_probes_in_one_example_are_found() -> None:
    record = parse_line(json.dumps(chat("What is the capital of France?", TEXT, "And now?")).encode())
    assert Leaks(probes()).of(record.canonical) == {
        "short": "the words of the probe short (p.jsonl:3)",
        "capital": "the words of the probe capital (p.jsonl:2)",
        "archive": "the words of the probe archive (p.jsonl:1)",
    }
