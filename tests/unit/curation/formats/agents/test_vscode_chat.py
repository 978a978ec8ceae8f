"""From chats of Copilot in VS Code to what is learned of them."""

import json

from support.log_samples.copilot import CHANGES, CHAT, FACTS, REQUESTS, change, round_
from support.readings import examples, kinds, learned, read

from apollod.curation.formats.agents.vscode_chat import DOCUMENT, READER
from apollod.curation.formats.table import ReaderTable

FIRST = [
    'user: Fix it\n\n<attachments>\n<attachment id="a">x = 1</attachment>\n</attachments>',
    "assistant*: [hm] I look. read_file{'q': 1}",
    "tool: x = 1",
    "assistant*: list{'q': 1}",
    "tool: a.py\nb.py",
    "assistant*: Done.",
]
SECOND = ["user: Again", "assistant*: So it is."]


def as_context(texts: list[str]) -> list[str]:
    return [text.replace("*:", ":") for text in texts]


def test_a_document_becomes_examples_of_what_the_model_wrote() -> None:
    reading = read(DOCUMENT, CHAT)
    assert examples(reading) == [
        FIRST,
        [*as_context(FIRST), *SECOND],
        "taken back by the user (rewound)",
        "another model's answers",
    ]
    assert reading.bad == []


def test_what_was_broken_off_or_shown_otherwise_is_only_context() -> None:
    last = read(DOCUMENT, CHAT).moments[-1]
    texts = {said.message["content"]: said.message.get("weight") for said in last.messages}
    assert texts["I beg"] == 0 and texts["In "] == 0 and texts["Theirs."] is None
    assert "Taken back." not in texts


def test_votes_and_stops_are_evidence() -> None:
    reading = read(DOCUMENT, CHAT)
    assert [kinds(moment) for moment in reading.moments[:3]] == [["rating"], ["rating"], ["rewound"]]
    values = [signal.value for moment in reading.moments[:2] for said in moment.messages for signal in said.signals]
    assert [value.split()[0] for value in values[-2:]] == ["1", "-1"]
    origin = learned(reading.moments[0]).origin
    assert (origin.agent, origin.model, origin.responses) == ("vscode-chat", "apollo", ("x1",))


def test_a_log_of_changes_becomes_the_same() -> None:
    reading = read(READER, *CHANGES)
    first = ["user: Fix it", "assistant*: Done."]
    assert examples(reading) == [
        first,
        "taken back by the user (rewound)",
        [*as_context(first), "user: Test it twice", "assistant*: Twice."],
    ]
    assert learned(reading.moments[0]).origin.session == "s1"
    assert kinds(reading.moments[0]) == ["rating"]
    assert reading.counts == {"dropped: what the editor shows or keeps for itself": 2, "unknown: kind: 7": 1}


def test_a_log_that_begins_with_requests_gives_them_at_once() -> None:
    begin = json.dumps({"kind": 0, "v": {**FACTS, "sessionId": "s2", "requests": REQUESTS[:3]}}).encode() + b"\n"
    more = change(2, "requests", v=[{"requestId": "r9", "message": {"text": "Then"}, "modelId": "x/apollo"}])
    done = change(1, "requests", 2, "result", v={"metadata": {"toolCallRounds": [round_("Well.")]}})
    reading = read(READER, begin, more, done)
    whole = [*FIRST, *SECOND]
    assert examples(reading) == [whole, [*as_context(whole), "user: Then", "assistant*: Well."]]
    assert kinds(reading.moments[0]) == ["rating", "rating"]


def test_a_stop_in_a_log_is_evidence() -> None:
    stopped = change(1, "requests", 0, "isCanceled", v=True)
    assert kinds(read(READER, *CHANGES[:4], stopped).moments[0]) == ["interrupted"]


def test_what_is_broken_is_said_in_a_line() -> None:
    broken = (
        change(2, "requests", v=7),
        change(1, "requests", 0, "result", v={"metadata": {"toolCallRounds": [round_("", ("c", ""))]}}),
        b'{"kind": "one"}\n',
    )
    reading = read(READER, *broken)
    assert [bad.line for bad in reading.bad] == [1, 2, 3]
    assert all("\n" not in bad.reason and "this reader fails" not in bad.reason for bad in reading.bad)


def test_it_is_recognised_by_its_beginning() -> None:
    table = ReaderTable()
    assert table.recognise("x.json", CHAT[:500]).name == "vscode-chat-document"
    assert table.recognise("x.jsonl", CHANGES[0]).name == "vscode-chat"
    assert not table.knows("x.json", b'{"version": 3, "configurations": []}')
