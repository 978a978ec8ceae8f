"""From sessions of Qwen Code to what is learned of them."""

from support.log_samples.qwen import BROKEN, DRIFT, SESSION, model, user
from support.readings import examples, kinds, learned, read

from apollod.curation.formats.qwen import READER
from apollod.curation.formats.table import ReaderTable


def test_a_session_becomes_examples() -> None:
    reading = read(READER, *SESSION)
    first = ["user: Fix it", "assistant*: [hm] I look. ls{'of': '.'}", "tool: a.py", "assistant*: Done."]
    context = [text.replace("*:", ":") for text in first]
    assert examples(reading) == [
        first,
        "taken back by the user (rewound)",
        [*context, "user: Test it", "user: A task has ended", "assistant*: It passes."],
        ["user: Summary: all is well", "assistant: Good.", "user: Commit", "assistant*: Committed."],
    ]
    assert (reading.bad, reading.counts) == (
        [],
        {
            "dropped: system: session_model": 1,
            "dropped: system: ui_telemetry": 1,
            "dropped: system: rewind": 1,
            "dropped: system: chat_compression": 1,
        },
    )


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    first, back, *_ = read(READER, *SESSION).moments
    origin = learned(first).origin
    assert (origin.session, origin.agent, origin.version, origin.model) == ("s1", "qwen-code", "0.20.0", "apollo")
    assert kinds(back) == ["rewound", "refused"]


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, *DRIFT)
    assert examples(reading) == ["a sidechain"]
    assert examples(reading, sidechains=True) == [["user: hi", "assistant*: hello"]]
    assert reading.moments[0].session.id == "a1", "a subagent has the session of who started it"
    assert reading.counts == {"unknown: hologram": 1, "dropped: a prompt without text": 1}


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 4, 6, 7]
    assert all("\n" not in bad.reason for bad in reading.bad)


def test_it_is_told_apart_from_claude_code() -> None:
    table = ReaderTable()
    for log in (SESSION[0], SESSION[1], user(1, 0, "q") + model(2, 1, {"text": "a"})):
        assert table.recognise("any.jsonl", log).name == "qwen-code"
    claude = b'{"sessionId": "s", "parentUuid": null, "message": {"role": "user", "content": "parts"}}\n'
    assert table.recognise("any.jsonl", claude).name == "claude-code"
