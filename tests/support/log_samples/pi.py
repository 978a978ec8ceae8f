"""Lines of pi's sessions, which OpenClaw writes, too."""

import json


def line(type: str, number: int = 0, after: int = 0, **fields: object) -> bytes:
    tree = {"id": f"e{number}", "parentId": f"e{after}" if after else None} if number else {}
    return json.dumps({"type": type, **tree, "timestamp": "2026-01-02T03:04:07.000Z", **fields}).encode() + b"\n"


def message(number: int, after: int, role: str, content: object = None, **fields: object) -> bytes:
    if role == "assistant":
        fields = {"model": "apollo", "provider": "vllm", "api": "openai-completions", "stopReason": "stop", **fields}
    return line("message", number, after, message={"role": role, "content": content, **fields})


def text(words: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": words}]


HEADER = line("session", version=3, id="s1", cwd="/w")
CALL = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}
SESSION = (
    HEADER,
    line("model_change", 1, 0, provider="vllm", modelId="apollo"),
    line("thinking_level_change", 2, 1, thinkingLevel="high"),
    message(3, 2, "user", "Fix it"),
    message(
        4, 3, "assistant", [{"type": "thinking", "thinking": "hm"}, *text("I look."), CALL],
        stopReason="toolUse", responseId="r1",
    ),
    message(5, 4, "toolResult", text("a.py"), toolCallId="c1", toolName="bash", isError=True),
    message(6, 5, "assistant", text("Done.")),
    message(7, 6, "bashExecution", command="make", output="ok", exitCode=2, cancelled=False, truncated=False),
    message(8, 7, "bashExecution", command="env", output="secret", exitCode=0, excludeFromContext=True),
    message(9, 8, "user", text("No, otherwise")),
    message(10, 9, "assistant", text("Of course.")),
    line("branch_summary", 11, 6, fromId="e10", summary="It was tried"),
    message(12, 11, "user", text("Now the tests")),
    message(13, 12, "assistant", text("half a"), stopReason="aborted"),
    message(14, 13, "assistant", text("They pass.")),
    line("compaction", 15, 14, summary="Fixed and tested", firstKeptEntryId="e12", tokensBefore=9),
    message(16, 15, "user", "Commit"),
    message(17, 16, "assistant", text("Committed.")),
    line("compaction", 18, 17, summary="All is done", tokensBefore=9, retainedTail=[
        {"role": "user", "content": "Commit"}, {"role": "assistant", "content": text("Committed."), "model": "apollo"},
    ]),
    line("custom_message", 19, 18, customType="x", content="It is noon", display=True),
    message(20, 19, "user", "Push"),
    message(21, 20, "assistant", text("Pushed.")),
    line("label", 22, 21, targetId="e3", label="here"),
    message(23, 0, "user", "Begin anew"),
    message(24, 23, "assistant", text("Yes.")),
)  # fmt: skip
DRIFT = (
    line("session", version=4, id="s4", parentSession="/old.jsonl", more={"a": 1}),
    message(31, 0, "user", text("hi"), mood="good"),
    line("from-the-future", 32, 31),
    message(33, 32, "seer", text("who knows")),
    message(34, 33, "assistant", [*text("hello"), {"type": "hologram"}]),
    message(35, 34, "user", [{"type": "image", "data": "AA", "mimeType": "image/png"}]),
)
VERSION_1 = (
    b'{"type": "session", "id": "s0", "provider": "vllm", "modelId": "apollo"}\n',
    b'{"type": "message", "message": {"role": "user", "content": "q"}}\n',
    b'{"type": "message", "message": {"role": "hookMessage", "content": "by the way"}}\n',
    b'{"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "a"}]}}\n',
    b'{"type": "message", "message": {"role": "assistant", "content": [], "model": null}}\n',
)
BROKEN = (
    line("message", 41, 0, message=7),
    message(42, 0, "assistant", [{"type": "toolCall", "id": "c", "arguments": {}}]),
    line("compaction", 43, 0, summary=["no"]),
    b'{"type": "message"}\n',
    b"not JSON\n",
    b"\n",
    b'{"type": "message", "message": ' + b"[" * 3000 + b"\n",
    b'{"type": "sess',
)
LINES = (*SESSION, *DRIFT, *VERSION_1, *BROKEN)
