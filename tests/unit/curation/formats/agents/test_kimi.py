"""From sessions of Kimi to what is learned of them."""

from support.log_samples.kimi import BROKEN, CONTEXT, DRIFT, SESSION
from support.readings import examples, kinds, learned, read

from apollod.curation.formats.agents.kimi import READER
from apollod.curation.formats.table import ReaderTable

FIRST = [
    "system: You are Kimi",
    "user: Fix it",
    "assistant*: [hm] I look. Bash{'command': 'pytest'} Read{'path': 'a'}",
    "tool: 1 passed",
    "tool: The tool call was rejected by the user",
    "assistant*: Done.",
]


def test_a_wire_becomes_examples() -> None:
    reading = read(READER, *SESSION)
    context = [text.replace("*:", ":") for text in FIRST]
    system = "system: You are Kimi"
    assert examples(reading) == [
        FIRST,
        "taken back by the user (rewound)",
        [*context, "user: And now?", "assistant*: Nothing."],
        [system, "user: Summary: all is well", "user: Commit", "assistant*: Commit"],
        [system, "user: New", "assistant*: Begun."],
    ]
    assert reading.bad == []


def test_what_shows_its_worth() -> None:
    moments = read(READER, *SESSION).moments
    assert sorted(kinds(moments[0])) == ["check", "refused"]
    assert sorted(kinds(moments[1])) == ["interrupted", "rewound"]
    assert kinds(moments[3]) == ["interrupted"], "it ended with max_tokens"
    assert learned(moments[0]).origin.model == "apollo"
    other = read(READER, *(line.replace(b'"model":"apollo"', b'"model":"k3"') for line in SESSION[:19]))
    assert examples(other) == ["another model's answers"], "what was asked of the server counts"


def test_a_context_becomes_the_same() -> None:
    reading = read(READER, *CONTEXT)
    turn = ["user: Fix it", "assistant*: [hm] I look. Shell{'q': 1}", "tool: <system>ERROR: no</system>"]
    assert examples(reading) == ["another model's answers"], "it does not say whose they are"
    assert examples(reading, models=("*",)) == [["system: You are Kimi", *turn, "assistant*: Done."]]
    assert kinds(reading.moments[0], models=("*",)) == ["tool-error"]


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, *DRIFT)
    assert examples(reading) == [["user: hi", "assistant*: hello"]]
    assert reading.counts == {
        "unknown: hologram": 1,
        "unknown: event: future.event": 1,
        "dropped: a line of an older wire; context.jsonl says the same": 1,
    }


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 5]
    assert all("\n" not in bad.reason and "this reader fails" not in bad.reason for bad in reading.bad)


def test_it_is_recognised() -> None:
    table = ReaderTable()
    assert table.recognise("wire.jsonl", SESSION[0]).name == "kimi"
    assert table.recognise("context.jsonl", b"".join(CONTEXT)).name == "kimi"
    assert table.recognise("x.jsonl", b'{"role": "user", "content": "_usage"}\n').name == "records"
