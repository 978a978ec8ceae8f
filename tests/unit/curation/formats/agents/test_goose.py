"""From sessions of Goose, as lines and in its database, to what is learned of them."""

import msgspec
from support.log_samples.goose import BROKEN, DRIFT, FIRST, SESSION
from support.readings import examples, kinds, learned, read

from apollod.curation.formats.agents.goose import DATABASE, READER
from apollod.curation.formats.table import ReaderTable

TURN = [
    "user: Fix it",
    "assistant*: [hm] I look. developer__shell{'command': 'pytest'}",
    "tool: 1 passed",
    "assistant*: write{'path': 'a'}",
    "tool: The user has declined to run this tool. DO NOT attempt to call it again.",
    "assistant*: list{}",
    "tool: a.py",
    "assistant*: list{}",
    "tool: no such tool",
    "assistant*: Done.",
]


def test_a_session_becomes_examples() -> None:
    reading = read(READER, *SESSION)
    context = [text.replace("*:", ":") for text in TURN]
    more = ["user: No, in b.py", "user: <info>time</info>", "assistant: Summary", "assistant*: Moved."]
    assert examples(reading) == [TURN, [*context, *more]]
    assert (reading.bad, reading.counts) == ([], {})
    other = read(READER, FIRST.replace(b"apollo", b"gpt"), *SESSION[1:12])
    assert examples(other) == ["another model's answers"]


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    first = read(READER, *SESSION).moments[0]
    assert learned(first).origin.session == "s1"
    assert sorted(kinds(first)) == ["check", "correction", "refused", "tool-error"]


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, *DRIFT)
    assert examples(reading) == [["user: hi", "assistant*: hello"]]
    assert reading.counts == {
        "unknown: content: hologram": 1,
        "unknown: role: narrator": 1,
        "dropped: a prompt without text": 1,
    }


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 5]
    assert all("\n" not in bad.reason and "this reader fails" not in bad.reason for bad in reading.bad)


def test_it_is_recognised() -> None:
    assert ReaderTable().recognise("20250724_1.jsonl", b"".join(SESSION[:2])).name == "goose"
    assert not READER.recognise("x.jsonl", b'{"working_dir": "/w", "description": "a row"}\n{"text": "x"}\n')


def test_rows_say_what_lines_say() -> None:
    rows = []
    for n, line in enumerate(SESSION[1:]):
        message = msgspec.json.decode(line)
        content, metadata = (msgspec.json.encode(message.get(key)).decode() for key in ("content", "metadata"))
        row = {"key": n, "role": message["role"], "message_id": message["id"], "content_json": content}
        rows.append([{**row, "metadata_json": metadata if message.get("metadata") else None}])
    facts = {"id": "s1", "model_config_json": '{"model_name": "apollo"}', "session_type": "sub_agent"}
    session, heard = DATABASE.session(facts), DATABASE.hear(facts, rows)
    assert (session.id, session.model, session.sidechain) == ("s1", "apollo", True)
    assert [one.problem for one in heard] == [""] * len(rows)
    said = [entry for one in heard for entry in one.entries]
    lines = [entry for line in SESSION[1:] for entry in READER._hear(line)]
    assert said == lines
