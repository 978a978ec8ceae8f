"""Pieces of every format, from which tests put together logs. A reader without a row here fails its tests."""

import json

from support.log_samples import (
    atif,
    cline,
    codex,
    copilot,
    cursor_transcript,
    droid,
    gemini,
    goose,
    inspect_log,
    kimi,
    open_webui,
    otel,
    pi,
    qwen,
    rows,
    sillytavern,
)

RECORDS = (
    b'{"text": "a"}\n',
    b'{"text": "b"}\r\n',
    b'{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}\n',
    b'{"prompt": "p", "completion": "c", "tier": "direct"}\n',
    b'{"text": ""}\n',
    b"not JSON\n",
    b"\n",
    b" \r\n",
    b'{"text": NaN}\n',
    b"\xef\xbb\xbf",
    b'{"text": "\\ud800"}\n',
    b'{"text": "\xff"}\n',
    b"[" * 150 + b"\n",
    b'{"text": "' + b"x" * 150 + b'"}\n',
    b"\x00\n",
    b'{"text',
)
TOY = (
    b"> how?\n",
    b"< so\n",
    b"< again so\r\n",
    b"\n",
    b"\r\n",
    b"neither\n",
    b"> ",
    b"<\xff\n",
    b"< " + b"x" * 150 + b"\n",
    b"<\n",
)


def _claude(number: int, after: int, type: str, message: object = None, **more: object) -> bytes:
    record = {
        "type": type, "uuid": f"u{number}", "parentUuid": f"u{after}" if after else None, "sessionId": "s",
        "version": "2.1.1", "isSidechain": False, "cwd": "/w", "message": message, **more,
    }  # fmt: skip
    return json.dumps(record).encode() + b"\n"


def _block(type: str, **fields: object) -> dict[str, object]:
    return {"type": type, **fields}


def _said(message: str, *blocks: dict[str, object]) -> dict[str, object]:
    return {"role": "assistant", "id": message, "model": "apollo", "content": list(blocks)}


CLAUDE_CODE = (
    _claude(1, 0, "user", {"role": "user", "content": "Fix it"}),
    _claude(2, 1, "assistant", _said("m1", _block("thinking", thinking="hm", signature="x"))),
    _claude(3, 2, "assistant", _said("m1", _block("text", text="I look."))),
    _claude(4, 3, "assistant", _said("m1", _block("tool_use", id="t1", name="Bash", input={"command": "ls"}))),
    _claude(5, 4, "user", {"role": "user", "content": [_block("tool_result", tool_use_id="t1", content="a.py")]}),
    _claude(6, 5, "assistant", _said("m2", _block("text", text="Done."))),
    _claude(7, 6, "user", {"role": "user", "content": "No, in the other file"}),
    _claude(8, 7, "assistant", _said("m3", _block("text", text="Of course."))),
    _claude(9, 6, "user", {"role": "user", "content": [_block("text", text="Another question")]}),
    _claude(10, 9, "system", None, subtype="turn_duration"),
    _claude(11, 10, "assistant", _said("m4", _block("text", text="Another answer"))),
    _claude(12, 11, "user", {"role": "user", "content": "<command-name>/clear</command-name>"}, isMeta=True),
    _claude(13, 11, "user", {"role": "user", "content": "[Request interrupted by user]"}),
    b'{"type": "summary", "summary": "A title", "leafUuid": "u6"}\n',
    b'{"type": "from-the-future", "uuid": "u14", "parentUuid": "u11"}\n',
    b'{"type": "assistant", "message": {"content": [{"type": "tool_use", "input": {}}], "id": "m9"}}\n',
    b'{"type": 7}\n',
    b"not JSON\n",
    b"\n",
    b"[" * 150 + b"\n",
    b'{"type',
)

CLAUDE_ADDED = (
    _claude(30, 0, "user", {"role": "user", "content": "<command-name>/fix</command-name>"}),
    _claude(31, 30, "user", {"role": "user", "content": [_block("text", text="Fix what is broken.")]}, isMeta=True),
    _claude(
        32, 31, "attachment", attachment={"type": "file", "filename": "/w/a", "content": {"file": {"content": "a"}}}
    ),
    _claude(33, 32, "attachment", attachment={"type": "hook_additional_context", "content": ["b"], "hookName": "h"}),
    _claude(34, 33, "assistant", _said("m7", _block("tool_use", id="t7", name="Bash", input={"command": "ls"}))),
    b'{"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "no, wait"}\n',
    b'{"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "and then"}\n',
    b'{"type": "queue-operation", "operation": "remove", "sessionId": "s"}\n',
    _claude(35, 34, "user", {"role": "user", "content": [_block("tool_result", tool_use_id="t7", content="b.py")]}),
    _claude(36, 35, "attachment", attachment={"type": "queued_command", "prompt": "no, wait", "commandMode": "prompt"}),
    _claude(37, 36, "assistant", _said("m8", _block("text", text="I wait."))),
    b'{"type": "queue-operation", "operation": "popAll", "sessionId": "s"}\n',
    _claude(38, 37, "user", {"role": "user", "content": "<command-name>/model</command-name>"}),
    _claude(39, 38, "user", {"role": "user", "content": "<local-command-stdout>set</local-command-stdout>"}),
)
"""What is added to prompts, and typed while the agent runs"""

SAMPLES: dict[str, tuple[bytes, ...]] = {
    "records": (*RECORDS, *(row for shape in rows.SHAPES.values() for row in shape)),
    "claude-code": (*CLAUDE_ADDED, *CLAUDE_CODE),
    "codex": codex.LINES,
    "pi": pi.LINES,
    "gemini-cli": gemini.ALL,
    "gemini-cli-document": gemini.PIECES,
    "qwen-code": qwen.LINES,
    "sillytavern": sillytavern.LINES,
    "atif": atif.PIECES,
    "otel-genai": otel.LINES,
    "open-webui": open_webui.PIECES,
    "json-rows": rows.ARRAY_PIECES,
    "cline": cline.PIECES,
    "factory-droid": droid.LINES,
    "goose": goose.LINES,
    "kimi": kimi.LINES,
    "inspect": inspect_log.LINES,
    "inspect-document": inspect_log.PIECES,
    "cursor-transcript": cursor_transcript.LINES,
    "copilot-cli": copilot.LINES,
    "vscode-chat": copilot.CHANGE_LINES,
    "vscode-chat-document": copilot.CHAT_PIECES,
    "toy": TOY,
}
