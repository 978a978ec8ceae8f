"""From sessions of Copilot's command line to what is learned of them."""

from support.log_samples.copilot import BROKEN, DRIFT, EVENTS, answered, asked, event
from support.readings import evidence, examples, kinds, learned, read

from apollod.curation.formats.agents.copilot import READER
from apollod.curation.formats.table import ReaderTable

FIRST = [
    "system: You are the CLI",
    "user: Fix it",
    "assistant*: [hm] I look. bash{'command': 'pytest'}",
    "tool: 1 passed\n<exited with exit code 0>",
    "assistant*: edit{'path': 'a'}",
    "tool: The user said no",
    "assistant*: Done.",
]


def test_a_session_becomes_examples() -> None:
    reading = read(READER, *EVENTS)
    context = [text.replace("*:", ":") for text in FIRST]
    assert examples(reading) == [
        FIRST,
        "taken back by the user (rewound)",
        [*context, "user: And now?", "assistant*: Nothing."],
        ["system: You are the CLI", "user: Summary: all is well", "user: Commit", "assistant*: Committed."],
    ]
    assert reading.bad == []
    assert reading.counts == {
        "dropped: what a subagent did": 1,
        "dropped: assistant.turn_start of the program": 1,
        "dropped: tool.execution_start of the program": 1,
        "dropped: session.shutdown of the program": 1,
    }


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    first, back, *_ = read(READER, *EVENTS).moments
    origin = learned(first).origin
    assert (origin.session, origin.agent, origin.version, origin.model) == ("s1", "copilot-cli", "1.0.71", "apollo")
    assert sorted(kinds(first)) == ["check", "correction", "interrupted", "refused"]
    assert ("refused", "bad", "The user said no") in evidence(first)
    assert kinds(back) == ["rewound"]


def test_what_a_skill_says_is_no_prompt_of_a_person() -> None:
    (back,) = [moment for moment in read(READER, *EVENTS).moments if moment.taken_back]
    texts = [(said.message["content"], said.prompt) for said in back.messages[back.fresh - 1 :]]
    assert ("<skill>pnpm</skill>", False) in texts


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, *DRIFT)
    assert examples(reading) == ["another model's answers"]
    assert examples(reading, models=("*",)) == [["user: hi", "assistant*: hello"]]
    assert reading.counts == {"unknown: hologram.shown": 1, "dropped: user.message of the program": 1}


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 4, 6]
    assert all("\n" not in bad.reason and "this reader fails" not in bad.reason for bad in reading.bad)


def test_the_model_is_that_of_the_answer_else_of_the_session() -> None:
    change = event(2, "session.model_change", {"newModel": "gpt"})
    begin = (EVENTS[0], change, asked(3, "a"), answered(4, "b"), asked(5, "c"), answered(6, "d", model="apollo"))
    assert examples(read(READER, *begin)) == [
        "another model's answers", ["user: a", "assistant: b", "user: c", "assistant*: d"],
    ]  # fmt: skip


def test_it_is_recognised() -> None:
    assert ReaderTable().recognise("events.jsonl", EVENTS[0]).name == "copilot-cli"
    assert not READER.recognise("events.jsonl", b'{"type": "session.update", "sessionId": "s"}\n')
