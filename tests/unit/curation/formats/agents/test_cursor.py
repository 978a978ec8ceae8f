"""From Cursor's transcripts and chats to what is learned of them."""

import json
from typing import Any

from support.log_samples.cursor_transcript import LINES, SESSION
from support.readings import examples, kinds, read

from apollod.curation.conversation import Said, Session
from apollod.curation.formats.agents.cursor import DATABASE, READER
from apollod.curation.formats.table import ReaderTable

ANYONE = ("*",)


def test_a_transcript_becomes_examples() -> None:
    reading = read(READER, *SESSION)
    first = ["user: Fix it", "assistant*: I look. Shell{'command': 'ls'}", "assistant*: Done."]
    context = [text.replace("*:", ":") for text in first]
    assert examples(reading, models=ANYONE) == [first, [*context, "user: No, in b.py", "assistant*: Moved."]]
    assert examples(reading) == ["another model's answers"] * 2, "a transcript names no model"
    assert [kinds(moment, models=ANYONE) for moment in reading.moments] == [["correction"], ["interrupted"]]


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *LINES)
    assert [bad.line for bad in reading.bad] == [10, 11, 12, 14]
    assert all("this reader fails" not in bad.reason for bad in reading.bad)
    assert reading.counts == {"unknown: role: narrator": 1, "dropped: a prompt without text": 1}
    assert ReaderTable().recognise("x.jsonl", SESSION[0]).name == "cursor-transcript"


def bubble(type: int, text: str = "", **more: Any) -> list[dict[str, Any]]:
    return [{"key": 0, "value": json.dumps({"type": type, "bubbleId": "b", "text": text, **more})}]


def tool(status: str, **more: Any) -> dict[str, Any]:
    return {"toolCallId": "c1", "name": "run_terminal_cmd", "rawArgs": '{"command": "ls"}', "status": status, **more}


def test_bubbles_say_what_was_asked_thought_called_and_refused() -> None:
    rows = [
        bubble(1, "Fix it", modelInfo={"modelName": "apollo"}),
        bubble(2, thinking={"text": "hm"}),
        bubble(2, "I look.", toolFormerData=tool("completed", result='{"output": "a.py"}')),
        bubble(2, toolFormerData=tool("cancelled", userDecision="rejected")),
        bubble(2, toolFormerData=tool("error", rawArgs="[", result="boom")),
        bubble(7),
    ]
    heard = DATABASE.hear({"id": "s1"}, rows)
    assert [one.problem for one in heard] == [""] * len(rows)
    entries = [entry for one in heard for entry in one.entries]
    said = [entry for entry in entries if isinstance(entry, Said)]
    assert [one.message["role"] for one in said] == [
        "user", "assistant", "assistant", "tool", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert said[0].prompt and said[1].message["reasoning_content"] == "hm" and said[1].continues
    assert said[2].message["tool_calls"][0]["function"] == {
        "arguments": {"command": "ls"}, "name": "run_terminal_cmd",
    }  # fmt: skip
    assert [signal.kind for one in said for signal in one.signals] == ["refused", "tool-error"]
    assert [entry.model for entry in entries if isinstance(entry, Session)] == ["apollo"]
    assert DATABASE.session({"id": "s1", "model": "apollo"}).model == "apollo"


def test_what_is_being_written_is_waited_for() -> None:
    rows = [bubble(1, "Fix it"), bubble(2, toolFormerData=tool("loading"))]
    assert len(DATABASE.hear({}, rows)) == 1
    assert len(DATABASE.hear({"status": "generating"}, [bubble(1, "Fix it"), bubble(2, "So")])) == 1
    assert len(DATABASE.hear({"status": "completed"}, [bubble(1, "Fix it"), bubble(2, "So")])) == 2
