"""From logs of Inspect to what is learned of them."""

import json

import pytest
from support.log_samples.inspect_log import BEGIN, CUT, DOCUMENT, HEADER, LINES, LONG, SAMPLE, SAMPLES
from support.readings import evidence, examples, learned, read

from apollod.curation.formats.agents.inspect_log import DOCUMENT as DOCUMENT_READER
from apollod.curation.formats.agents.inspect_log import READER, line_of_sample
from apollod.curation.formats.reader import Reader
from apollod.curation.formats.table import ReaderTable

FIRST = [
    "system: Be brief.",
    f"user: {LONG}",
    "assistant: An example.",
    "user: Look",
    "assistant*: [hm] I look. bash{'cmd': 'ls'}",
    "tool: a.py",
    "assistant: bash{}",
    "tool: no",
    "assistant*: a.py",
]
AS_LINES = b"".join((BEGIN, *(line_of_sample(json.dumps(sample, indent=1).encode()) for sample in SAMPLES)))


@pytest.mark.parametrize(("reader", "log"), [(READER, AS_LINES), (DOCUMENT_READER, DOCUMENT)], ids=["eval", "json"])
def test_samples_become_examples(reader: Reader, log: bytes) -> None:
    reading = read(reader, log)
    assert examples(reading) == [FIRST, "the sample ended with an error", "no answer", "another model's answers"]
    assert reading.bad == []
    assert reading.counts["unknown: role: narrator"] == 1
    assert reading.counts["dropped: a sample without an answer"] == 1
    origin = learned(reading.moments[0]).origin
    assert (origin.session, origin.agent, origin.model) == ("s1", "inspect", "apollo")


def test_scores_and_refusals_are_evidence() -> None:
    reading = read(READER, AS_LINES)
    assert sorted(evidence(reading.moments[0])) == [
        ("evaluation", "bad", "close_ness 0.25"),
        ("evaluation", "good", "includes correct"),
        ("refused", "bad", "no"),
    ]
    assert evidence(reading.moments[3], models=("*",)) == [("evaluation", "bad", "match incorrect")]


def test_an_answer_that_was_cut_off_is_context_and_the_model_is_that_of_its_use() -> None:
    whole = {**CUT, "output": {"choices": [{"stop_reason": "stop"}]}}
    assert examples(read(READER, BEGIN, line_of_sample(json.dumps(whole).encode()))) == [
        ["user: Count", "assistant*: 1 2 3"]
    ]
    assert examples(read(READER, BEGIN, line_of_sample(json.dumps(CUT).encode()))) == ["no answer"]


def test_events_are_not_kept() -> None:
    line = line_of_sample(json.dumps(SAMPLE, indent=2).encode())
    assert line.count(b"\n") == 1 and b"event" not in line
    assert line_of_sample(b'{"messages":\n [') == b'{"messages":  [\n', "what is broken stays for the reader to say"


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *LINES)
    assert [bad.line for bad in reading.bad] == [7, 8, 9, 11]
    assert all("\n" not in bad.reason and "this reader fails" not in bad.reason for bad in reading.bad)


def test_it_is_recognised() -> None:
    table = ReaderTable()
    assert table.recognise("x", AS_LINES[:300]).name == "inspect"
    assert table.recognise("x.json", DOCUMENT[:300]).name == "inspect-document"
    assert table.knows("x.json", json.dumps(HEADER).encode())
    assert not table.knows("x.json", b'{"version": 2, "status": "success"}')
