"""From sessions of Factory's Droid to what is learned of them."""

from support.log_samples.droid import BROKEN, DRIFT, SESSION
from support.readings import examples, kinds, learned, read

from apollod.curation.formats.agents.droid import READER
from apollod.curation.formats.table import ReaderTable

ANYONE = ("*",)
FIRST = [
    "user: Fix it",
    "assistant*: [hm] I look. Execute{'command': 'pytest'}",
    "tool: 1 passed",
    "assistant*: Create{'path': 'a'}",
    "tool: Request cancelled by user",
    "assistant*: Done.",
]


def test_a_session_becomes_examples() -> None:
    reading = read(READER, *SESSION)
    context = [text.replace("*:", ":") for text in FIRST]
    assert examples(reading) == ["another model's answers"] * 3, "the model is in another file"
    assert examples(reading, models=ANYONE) == [
        FIRST,
        [*context, "user: No, in b.py", "assistant*: Moved."],
        ["user: Summary: all is well", "user: Commit", "assistant*: Committed."],
    ]
    assert reading.bad == []
    assert reading.counts == {"dropped: todo_state": 1, "dropped: text of the program, not of a person": 1}


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    first = read(READER, *SESSION).moments[0]
    origin = learned(first, models=ANYONE).origin
    assert (origin.session, origin.agent, origin.records) == ("s1", "factory-droid", ("a3",))
    assert sorted(kinds(first, models=ANYONE)) == ["check", "correction", "refused"]


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, *DRIFT)
    assert examples(reading) == [["user: hi", "assistant*: hello"]], "should a message name the model, that counts"
    assert reading.counts == {
        "unknown: hologram": 1,
        "unknown: role: narrator": 1,
        "dropped: text of the program, not of a person": 1,
    }


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 4, 6]
    assert all("\n" not in bad.reason and "this reader fails" not in bad.reason for bad in reading.bad)


def test_it_is_recognised() -> None:
    assert ReaderTable().recognise("s1.jsonl", SESSION[0]).name == "factory-droid"
    assert not READER.recognise("s1.jsonl", b'{"type":"session_start","id":"x","model":"m"}\n{"type":"user_message"}\n')
