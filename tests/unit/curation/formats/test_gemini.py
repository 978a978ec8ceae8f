"""From chats of Gemini CLI to what is learned of them."""

import pytest
from support.log_samples.gemini import BROKEN, DOCUMENT, DRIFT, FACTS, LINES, MESSAGES, line, message
from support.readings import every, examples, kinds, read

from apollod.curation.formats.gemini import DOCUMENT as DOCUMENT_READER
from apollod.curation.formats.gemini import READER
from apollod.curation.formats.reader import Reader
from apollod.curation.formats.table import ReaderTable

FIRST = [
    "user: Fix it",
    "assistant*: I look. ls{'of': '.'}",
    "tool: a.py",
    "assistant*: ls{'of': '.'}",
    "tool: no such file",
    "assistant*: [so] Done.",
]
CONTEXT = [text.replace("*:", ":") for text in FIRST]


def test_lines_become_examples() -> None:
    reading = read(READER, *LINES)
    assert examples(reading) == [
        FIRST,
        "taken back by the user (rewound)",
        [*CONTEXT, "user: Test it", "assistant*: It passes."],
    ]
    assert (reading.bad, reading.counts) == (
        [],
        {"dropped: info of the program": 1, "dropped: facts about the session": 1},
    )


def test_a_document_becomes_the_same_examples() -> None:
    reading = read(DOCUMENT_READER, DOCUMENT)
    assert examples(reading) == [FIRST, [*CONTEXT, "user: And now?", "assistant*: Nothing."]]
    assert reading.bad == []


@pytest.mark.parametrize("log, reader", [(b"".join(LINES), READER), (DOCUMENT, DOCUMENT_READER)])
def test_where_it_comes_from_and_what_shows_its_worth(log: bytes, reader: Reader) -> None:
    several = every(read(reader, log).moments[0])
    first = several[0]
    assert (first.origin.session, first.origin.agent, first.origin.model) == ("s1", "gemini-cli", "apollo")
    assert [one.origin.records for one in several] == [("m2",), ("m4",), ("m5",)]
    assert kinds(read(reader, log).moments[0]) == ["tool-error"]


def test_thoughts_are_kept() -> None:
    (moment,) = read(READER, *(line(**one) for one in MESSAGES[:2])).moments
    assert examples(read(READER, line(**MESSAGES[0]), line(**MESSAGES[1]))) == [
        ["user: Fix it", "assistant*: [Plan: hm] I look. ls{'of': '.'}"]
    ]
    assert moment.messages[-1].message["reasoning_content"] == "Plan: hm"


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, line(**FACTS), *DRIFT, line(**message("n3", "gemini", "Yes.")))
    assert examples(reading) == ["a sidechain"]
    assert examples(reading, sidechains=True) == [[*FIRST[:3], "assistant*: Yes."]]
    assert reading.counts == {
        "unknown: message: hologram": 1,
        "dropped: a prompt without text": 1,
        "dropped: facts about the session": 2,
    }


def test_all_messages_said_again_are_learned_once() -> None:
    """As `$set` with messages does; also those that are too long ago to be context."""
    long = [message(f"x{n}", ("gemini", "user")[n % 2 == 0], f"{n} " + "x" * 9000) for n in range(60)]
    asked = message("y1", "user", "And?")
    log = [line(**{"$set": {"messages": long[:n]}}) for n in (2, 40, 40)]
    log += [line(**{"$set": {"messages": [*long, asked]}}), line(**{"$set": {"messages": [*long, asked]}})]
    reading = read(READER, line(**FACTS), *log, line(**message("y2", "gemini", "So.")))
    said = [
        text.split()[1]
        for example in examples(reading)
        for text in example
        if isinstance(example, list) and text.startswith("assistant*")
    ]
    assert said == [*(str(n) for n in range(1, 60, 2)), "So."]


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 4, 5, 6]
    assert all("\n" not in bad.reason for bad in reading.bad)
    cut_off = read(DOCUMENT_READER, DOCUMENT[:-200])
    assert examples(cut_off)[0] == FIRST and "document ends" in cut_off.bad[-1].reason


def test_it_is_recognised_by_its_beginning() -> None:
    table = ReaderTable()
    assert table.recognise("session-1.jsonl", LINES[0] + LINES[1]).name == "gemini-cli"
    assert table.recognise("session-1.json", DOCUMENT[:300]).name == "gemini-cli-document"
    assert table.recognise("any", b"".join(DOCUMENT.split(b"\n"))).name == "gemini-cli-document"
    assert table.recognise("a.jsonl", b'{"sessionId": "s"}\n').name == "records"
