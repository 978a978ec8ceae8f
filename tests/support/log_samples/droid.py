"""Lines of Factory's Droid."""

import json
from typing import Any


def line(type: str, **fields: Any) -> bytes:
    return json.dumps({"type": type, **fields}).encode() + b"\n"


def said(name: str, role: str, *blocks: Any, **more: Any) -> bytes:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return line(
        "message", id=name, timestamp="2026-04-20T10:00:00.000Z", message={"role": role, "content": content, **more}
    )


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


SESSION = (
    line("session_start", id="s1", title="t", cwd="/w", version=2),
    said("u1", "user", "<system-reminder>env</system-reminder>", "Fix it"),
    said("a1", "assistant", {"type": "thinking", "thinking": "hm"}, "I look.", call("Execute", "c1", command="pytest")),
    line("todo_state", todos=[]),
    said("u2", "user", result("c1", "1 passed"), "<system-reminder>todo</system-reminder>"),
    said("a2", "assistant", call("Create", "c2", path="a")),
    said("u3", "user", result("c2", [{"type": "text", "text": "Request cancelled by user"}], is_error=True)),
    said("a3", "assistant", "Done."),
    said("h1", "user", "hidden context", visibility="llm_only"),
    said("u4", "user", "No, in b.py"),
    said("a4", "assistant", "Moved."),
    line("compaction_state", summaryText="Summary: all is well"),
    said("u5", "user", "Commit"),
    said("a5", "assistant", "Committed."),
)
DRIFT = (
    line("hologram"),
    said("u6", "user", "hi", mood="good"),
    said("a6", "assistant", "hello", model="apollo"),
    said("n1", "narrator", "x"),
    said("u7", "user", "<system-reminder>x</system-reminder>"),
)
BROKEN = (
    said("a7", "assistant", {"type": "tool_use"}),
    line("message", message=7),
    b'{"type": 7}\n',
    b"not JSON\n",
    b"\n",
    b'{"type": "mess',
)
LINES = (*SESSION, *DRIFT, *BROKEN)
