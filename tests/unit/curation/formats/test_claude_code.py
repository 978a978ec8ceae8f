"""Sessions of Claude Code that say less than usual. What is learned of whole ones: test_conversations.py."""

import json
from typing import Any

from support.readings import examples, read

from apollod.curation.formats.claude_code import READER
from apollod.curation.formats.table import ReaderTable


def line(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, "sessionId": "s", "timestamp": "2026-07-17T09:00:00Z", **more}).encode() + b"\n"


def said(role: str, content: Any) -> bytes:
    return line(role, message={"role": role, "content": content})


SESSION = said("user", "look at it") + said("assistant", [{"type": "text", "text": "it is well"}])


def test_records_without_a_tree_are_recognised_and_read_in_their_order() -> None:
    """As the published conformance samples have them."""
    for head in (SESSION, line("system", subtype="compact_boundary") + SESSION):
        assert ReaderTable().recognise("session.jsonl", head).name == "claude-code"
        reading = read(READER, head)
        assert examples(reading, models=("*",)) == [["user: look at it", "assistant*: it is well"]]
        assert not reading.bad


def test_what_only_has_a_session_is_not_taken_for_it() -> None:
    for head in (b'{"sessionId": "s", "messages": []}\n', line("user", content="hello"), line("gemini", content=[])):
        assert ReaderTable().recognise("x.jsonl", head).name != "claude-code"
    qwen = line("user", message={"role": "user", "parts": [{"text": "hi"}]})
    assert ReaderTable().recognise("x.jsonl", qwen).name == "qwen-code"
