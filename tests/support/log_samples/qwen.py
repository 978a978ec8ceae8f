"""Lines of Qwen Code's sessions."""

import json


def line(number: int, after: int, type: str, message: object = None, **more: object) -> bytes:
    record = {
        "uuid": f"u{number}", "parentUuid": f"u{after}" if after else None, "sessionId": "s1",
        "timestamp": "2026-07-17T09:00:01Z", "type": type, "cwd": "/w", "version": "0.20.0",
    }  # fmt: skip
    return json.dumps({**record, **({"message": message} if message else {}), **more}).encode() + b"\n"


def user(number: int, after: int, text: str, **more: object) -> bytes:
    return line(number, after, "user", {"role": "user", "parts": [{"text": text}]}, **more)


def model(number: int, after: int, *parts: object, **more: object) -> bytes:
    return line(number, after, "assistant", {"role": "model", "parts": list(parts)}, **{"model": "apollo", **more})


def result(number: int, after: int, call: str, output: object, status: str = "success") -> bytes:
    part = {"functionResponse": {"id": call, "name": "ls", "response": output}}
    done = {"callId": call, "status": status}
    return line(number, after, "tool_result", {"role": "user", "parts": [part]}, toolCallResult=done)


CALL = {"functionCall": {"id": "c1", "name": "ls", "args": {"of": "."}}}
SESSION = (
    line(1, 0, "system", subtype="session_model", systemPayload={"modelId": "apollo", "authType": "openai"}),
    user(2, 1, "Fix it"),
    model(3, 2, {"text": "hm", "thought": True}, {"text": "I look."}, CALL),
    result(4, 3, "c1", {"output": "a.py"}),
    model(5, 4, {"text": "Done."}),
    line(6, 5, "system", subtype="ui_telemetry", systemPayload={"uiEvent": {}}),
    user(7, 6, "No, otherwise"),
    model(8, 7, CALL),
    result(9, 8, "c1", {"error": "no"}, "cancelled"),
    line(10, 5, "system", subtype="rewind", systemPayload={"truncatedCount": 3}),
    user(11, 10, "Test it"),
    user(12, 11, "A task has ended", subtype="notification"),
    model(13, 12, {"text": "It passes."}),
    line(14, 13, "system", subtype="chat_compression", systemPayload={"info": {}, "compressedHistory": [
        {"role": "user", "parts": [{"text": "Summary: all is well"}]}, {"role": "model", "parts": [{"text": "Good."}]},
    ]}),
    user(15, 14, "Commit"),
    model(16, 15, {"text": "Committed."}),
)  # fmt: skip
DRIFT = (
    user(21, 0, "hi", mood="good", isSidechain=True, agentId="a1"),
    line(22, 21, "hologram"),
    line(23, 22, "user", {"role": "user", "parts": [{"inlineData": {}}]}),
    model(24, 23, {"text": "hello"}, {"executableCode": {}}, isSidechain=True, agentId="a1"),
)
BROKEN = (
    line(31, 0, "assistant", 7),
    model(32, 0, {"functionCall": {"id": "c"}}),
    b'{"type": "user", "uuid": 7}\n',
    b"not JSON\n",
    b"\n",
    b'{"message": {"parts": ' + b"[" * 3000 + b"\n",
    b'{"uu',
)
LINES = (*SESSION, *DRIFT, *BROKEN)
