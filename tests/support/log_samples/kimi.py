"""Lines of Kimi Code's wires and of Kimi CLI's contexts."""

import json
from typing import Any


def line(type: str, **fields: Any) -> bytes:
    return json.dumps({"type": type, **fields, "time": 1782295201000}, separators=(",", ":")).encode() + b"\n"


def user(text: str, kind: str = "user") -> bytes:
    message = {"role": "user", "content": [{"type": "text", "text": text}], "toolCalls": [], "origin": {"kind": kind}}
    return line("context.append_message", message=message)


def event(type: str, **fields: Any) -> bytes:
    return line("context.append_loop_event", event={"type": type, **fields})


def part(step: str | None, type: str, text: str) -> bytes:
    key = "think" if type == "think" else "text"
    more = {"stepUuid": step} if step else {}
    return event("content.part", uuid="p", part={"type": type, key: text}, **more)


def call(step: str, call_id: str, name: str, **arguments: Any) -> bytes:
    return event("tool.call", stepUuid=step, toolCallId=call_id, name=name, args=arguments)


def result(call_id: str, output: Any, **more: Any) -> bytes:
    return event("tool.result", toolCallId=call_id, result={"output": output, **more})


SESSION = (
    line("metadata", protocol_version="1.4"),
    line("config.update", profileName="agent", systemPrompt="You are Kimi", modelAlias="local/apollo"),
    line("turn.prompt", input=[{"type": "text", "text": "Fix it"}], origin={"kind": "user"}),
    user("Fix it"),
    user("<system-reminder>plan</system-reminder>", "injection"),
    event("step.begin", uuid="s1"),
    line("llm.request", model="apollo", modelAlias="local/apollo"),
    part("s1", "think", "hm"),
    part("s1", "text", "I "),
    part("s1", "text", "look."),
    call("s1", "c1", "Bash", command="pytest"),
    call("s1", "c2", "Read", path="a"),
    event("step.end", uuid="s1", finishReason="tool_use"),
    result("c1", "1 passed"),
    result("c2", [{"type": "text", "text": "The tool call was rejected by the user"}], isError=True),
    event("step.begin", uuid="s2"),
    part("s2", "text", "Done."),
    event("step.end", uuid="s2", finishReason="end_turn"),
    line("usage.record", model="local/apollo"),
    user("Another"),
    part("s3", "text", "No."),
    line("turn.cancel"),
    line("context.undo", count=1),
    user("And now?"),
    part(None, "text", "Noth"),
    part(None, "text", "ing."),
    line("context.apply_compaction", summary="Summary: all is well", compactedCount=4),
    user("Commit"),
    part("s5", "text", "Commit"),
    event("step.end", uuid="s5", finishReason="max_tokens"),
    line("context.clear"),
    user("New"),
    part("s6", "text", "Begun."),
)
DRIFT = (
    line("hologram"),
    event("future.event"),
    line("config.update", modelAlias="apollo"),
    user("hi"),
    part("s7", "text", "hello"),
    part("s7", "hologram", "x"),
    b'{"timestamp": 1, "message": {"type": "TurnBegin", "payload": {}}}\n',
)
BROKEN = (
    event("tool.call", stepUuid="s8", toolCallId="c", name="", args={}),
    line("context.append_message", message=7),
    b"not JSON\n",
    b"\n",
    b'{"type',
)
CONTEXT = tuple(
    json.dumps(one).encode() + b"\n"
    for one in (
        {"role": "_system_prompt", "content": "You are Kimi"},
        {"role": "_checkpoint", "id": 0},
        {"role": "user", "content": "<system>CHECKPOINT 0</system>"},
        {"role": "user", "content": "Fix it"},
        {
            "role": "assistant",
            "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": "I look."}],
            "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "Shell", "arguments": '{"q": 1}'}}],
        },
        {"role": "_usage", "token_count": 7},
        {"role": "tool", "content": [{"type": "text", "text": "<system>ERROR: no</system>"}], "tool_call_id": "c1"},
        {"role": "assistant", "content": "Done."},
    )
)
LINES = (*SESSION, *DRIFT, *BROKEN, *CONTEXT)
