"""Lines of Goose's sessions."""

import json
from typing import Any


def text(text_: str) -> dict[str, Any]:
    return {"type": "text", "text": text_}


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    value = {"name": name, "arguments": arguments}
    return {"type": "toolRequest", "id": call_id, "toolCall": {"status": "success", "value": value}}


def result(call_id: str, outcome: Any) -> dict[str, Any]:
    return {"type": "toolResponse", "id": call_id, "toolResult": outcome}


def ok(*texts: str, **more: Any) -> dict[str, Any]:
    return {"status": "success", "value": {"content": [text(one) for one in texts], **more}}


def message(name: str | None, role: str, *content: Any, **more: Any) -> bytes:
    return (
        json.dumps({"id": name, "role": role, "created": 1784278801, "content": list(content), **more}).encode() + b"\n"
    )


HEADER = {"description": "about files", "id": "s1", "working_dir": "/w", "message_count": 2, "extension_data": {}}
FIRST = json.dumps({**HEADER, "model_config": {"model_name": "apollo"}}).encode() + b"\n"
SESSION = (
    FIRST,
    message("u1", "user", text("Fix it")),
    message("a1", "assistant", {"type": "thinking", "thinking": "hm", "signature": ""}, text("I look.")),
    message("a1", "assistant", call("developer__shell", "c1", command="pytest")),
    message("u2", "user", result("c1", ok("1 passed"))),
    message("a2", "assistant", call("write", "c2", path="a")),
    message("u3", "user", result("c2", ok("The user has declined to run this tool. DO NOT attempt to call it again."))),
    message("a3", "assistant", call("list", "c3")),
    message("u4", "user", result("c3", {"Ok": [text("a.py")]})),
    message("a4", "assistant", call("list", "c4")),
    message("u5", "user", result("c4", {"status": "error", "error": "no such tool"})),
    message("a5", "assistant", text("Done.")),
    message("u6", "user", text("No, in b.py")),
    message("u7", "user", text("<info>time</info>"), metadata={"userVisible": False, "agentVisible": True}),
    message("a6", "assistant", text("Summary"), metadata={"userVisible": False}),
    message("a7", "assistant", text("Moved."), metadata={"inference": {"resolvedModel": "apollo"}}),
)
DRIFT = (
    FIRST,
    message("u8", "user", text("hi"), {"type": "hologram"}, mood="good"),
    message("a8", "assistant", text("hello"), {"type": "systemNotification", "msg": "x"}),
    message("n1", "narrator", text("x")),
    message("u9", "user", {"type": "image"}),
)
BROKEN = (
    message("b1", "assistant", {**call("f", "c"), "toolCall": {"status": "success", "value": {"name": 7}}}),
    b'{"role": 7}\n',
    b"not JSON\n",
    b"\n",
    b'{"role',
)
LINES = (*SESSION, *DRIFT, *BROKEN)
