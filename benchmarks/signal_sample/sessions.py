"""Writes labelled moments as logs of their agents."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.signal_sample import Labelled

Lines = tuple[tuple[str, str], ...]
REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)


def log_of(moment: Labelled) -> bytes:
    """The log of a session with only this moment."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in WRITERS[moment.format](moment.lines))


def _call(mark: str, text: str, shell: str, key: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of the call in a `$` or `T` line."""
    if mark == "$":
        return shell, {key: text}
    name, _, arguments = text.partition(" ")
    return name, json.loads(arguments)


class _Tree:
    """Ids of consecutive records."""

    def __init__(self) -> None:
        self.number = 0
        self.last = ""
        self.asked_after = ""
        self.call = ""
        self.shell = False

    def next(self) -> tuple[str, str]:
        """(new id, id before)"""
        self.number += 1
        before, self.last = self.last, f"{self.number:08x}-0000-4000-8000-000000000000"
        return self.last, before

    def called(self, mark: str) -> str:
        self.call, self.shell = f"call_{self.number}", mark == "$"
        return self.call


def _asked(lines: Lines, n: int) -> str:
    """The prompt of line `n`, possibly a repeated one."""
    return lines[n][1] if lines[n][0] != "G" else next(text for mark, text in reversed(lines[:n]) if mark == "U")


def _claude(lines: Lines) -> Iterator[dict[str, Any]]:
    tree = _Tree()

    def record(type: str, message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        name, before = tree.next()
        told = {"message": message} if message else {}
        return {"type": type, "uuid": name, "parentUuid": before or None, "sessionId": "5e551011", "version": "2.1.1",
                "isSidechain": False, **told, **more}  # fmt: skip

    def answer(*blocks: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "id": f"msg_{tree.number}", "model": "apollo", "content": list(blocks)}
        return record("assistant", message)

    for n, (mark, text) in enumerate(lines):
        if mark in "UGB":
            if mark in "GB":
                tree.last = tree.asked_after
            tree.asked_after = tree.last
            yield record("user", {"role": "user", "content": _asked(lines, n)})
        elif mark == "A":
            yield answer({"type": "text", "text": text})
        elif mark in "$T":
            name, arguments = _call(mark, text, "Bash", "command")
            yield answer({"type": "tool_use", "id": tree.called(mark), "name": name, "input": arguments})
        elif mark in "=xR":
            shown = f"Exit code 1\n{text}" if mark == "x" and tree.shell else REFUSED if mark == "R" else text
            result = {"type": "tool_result", "tool_use_id": tree.call, "content": shown}
            failed = {"is_error": True} if mark in "xR" else {}
            yield record("user", {"role": "user", "content": [{**result, **failed}]})
        elif mark == "I":
            stopped = [{"type": "text", "text": "[Request interrupted by user]"}]
            yield record("user", {"role": "user", "content": stopped})
        elif mark == "C":
            tree.last, before = "", tree.last
            yield record("system", subtype="compact_boundary", logicalParentUuid=before)
            yield record("user", {"role": "user", "content": text}, isCompactSummary=True)


def _codex(lines: Lines) -> Iterator[dict[str, Any]]:
    calls, shell = 0, False

    def item(type: str, **fields: Any) -> dict[str, Any]:
        return {"timestamp": "2026-08-10T20:05:52Z", "type": "response_item", "payload": {"type": type, **fields}}

    def event(type: str, **fields: Any) -> dict[str, Any]:
        return {"timestamp": "2026-08-10T20:05:52Z", "type": "event_msg", "payload": {"type": type, **fields}}

    yield {"type": "session_meta", "payload": {"id": "s", "cli_version": "0.140.0"}}
    yield {"type": "turn_context", "payload": {"model": "apollo"}}
    for mark, text in lines:
        if mark == "U":
            yield item("message", role="user", content=[{"type": "input_text", "text": text}])
        elif mark == "A":
            yield item("message", role="assistant", content=[{"type": "output_text", "text": text}])
        elif mark in "$T":
            calls, shell = calls + 1, mark == "$"
            name, arguments = _call(mark, text, "exec_command", "cmd")
            yield item("function_call", name=name, arguments=json.dumps(arguments), call_id=f"call_{calls}")
        elif mark in "=xR":
            code = f"Exit code: {int(mark == 'x')}\nWall time: 0.4 seconds\nOutput:\n" if shell or mark == "x" else ""
            shown = "exec command rejected by user" if mark == "R" else code + text
            yield item("function_call_output", call_id=f"call_{calls}", output=shown)
        elif mark == "I":
            yield event("turn_aborted", reason="interrupted")
        elif mark == "W":
            yield event("thread_rolled_back", num_turns=int(text))
        elif mark == "C":
            yield {"type": "compacted", "payload": {"message": text}}


def _pi(lines: Lines) -> Iterator[dict[str, Any]]:
    tree = _Tree()

    def message(role: str, text: str, **fields: Any) -> dict[str, Any]:
        name, before = tree.next()
        content = fields.pop("content", [{"type": "text", "text": text}])
        told = {"role": role, "content": content, **fields}
        return {"type": "message", "id": name[:8], "parentId": before[:8] or None, "message": told}

    yield {"type": "session", "version": 3, "id": "s", "cwd": "/w"}
    for n, (mark, text) in enumerate(lines):
        if mark in "UGB":
            if mark in "GB":
                tree.last = tree.asked_after
            tree.asked_after = tree.last
            yield message("user", _asked(lines, n))
        elif mark == "A":
            yield message("assistant", text, model="apollo", stopReason="stop")
        elif mark in "$T":
            name, arguments = _call(mark, text, "bash", "command")
            block = {"type": "toolCall", "id": tree.called(mark), "name": name, "arguments": arguments}
            yield message("assistant", "", content=[block], model="apollo", stopReason="toolUse")
        elif mark in "=x":
            shown = f"{text}\n\nCommand exited with code 1" if mark == "x" and tree.shell else text
            yield message("toolResult", shown, toolCallId=tree.call, isError=mark == "x")


def _gemini(lines: Lines) -> Iterator[dict[str, Any]]:
    calls: dict[str, Any] = {}
    asked: list[str] = []
    yield {"sessionId": "s", "projectHash": "h"}
    for n, (mark, text) in enumerate(lines):
        if mark == "U":
            asked.append(f"m{n}")
            yield {"id": f"m{n}", "type": "user", "content": [{"text": text}]}
        elif mark == "A":
            yield {"id": f"m{n}", "type": "gemini", "content": text, "model": "apollo"}
        elif mark in "$T":
            name, arguments = _call(mark, text, "run_shell_command", "command")
            call = {"id": f"c{n}", "name": name, "args": arguments, "status": "executing"}
            calls = {"id": f"m{n}", "type": "gemini", "content": "", "model": "apollo", "toolCalls": [call]}
            yield calls
        elif mark in "=xR":
            call = calls["toolCalls"][0]
            shell = call["name"] == "run_shell_command"
            shown = f"Output: {text}\nExit Code: 1" if shell and mark == "x" else text
            output = {"error": text} if mark == "x" and not shell else {"output": shown}
            result = [{"functionResponse": {"id": call["id"], "name": call["name"], "response": output}}]
            status = "cancelled" if mark == "R" else "error" if mark == "x" and not shell else "success"
            yield {**calls, "toolCalls": [{**call, "status": status, "result": result}]}
        elif mark == "W":
            yield {"$rewindTo": asked[-int(text)]}


def _qwen(lines: Lines) -> Iterator[dict[str, Any]]:
    tree, name_of = _Tree(), ""

    def record(type: str, parts: list[Any] | None = None, **more: Any) -> dict[str, Any]:
        name, before = tree.next()
        role = "model" if type == "assistant" else "user"
        told = {"message": {"role": role, "parts": parts}} if parts is not None else {}
        model = {"model": "apollo"} if type == "assistant" else {}
        return {"uuid": name, "parentUuid": before or None, "sessionId": "s", "type": type, "version": "0.20.0",
                **model, **told, **more}  # fmt: skip

    for n, (mark, text) in enumerate(lines):
        if mark in "UGB":
            if mark in "GB":
                tree.last = tree.asked_after
            tree.asked_after = tree.last
            yield record("user", [{"text": _asked(lines, n)}])
        elif mark == "A":
            yield record("assistant", [{"text": text}])
        elif mark in "$T":
            name_of, arguments = _call(mark, text, "run_shell_command", "command")
            yield record("assistant", [{"functionCall": {"id": tree.called(mark), "name": name_of, "args": arguments}}])
        elif mark in "=xR":
            shown = f"Output: {text}\nExit Code: 1" if tree.shell and mark == "x" else text
            error = mark == "x" and not tree.shell
            response = {"error": text} if error else {"output": shown}
            part = {"functionResponse": {"id": tree.call, "name": name_of, "response": response}}
            status = "cancelled" if mark == "R" else "error" if error else "success"
            yield record("tool_result", [part], toolCallResult={"callId": tree.call, "status": status})
        elif mark == "C":
            history = [{"role": "user", "parts": [{"text": text}]}]
            yield record("system", subtype="chat_compression", systemPayload={"compressedHistory": history})


def _sillytavern(lines: Lines) -> Iterator[dict[str, Any]]:
    yield {"user_name": "You", "character_name": "Ada", "chat_metadata": {"integrity": "i"}}
    for n, (mark, text) in enumerate(lines):
        if mark == "U":
            yield {"name": "You", "is_user": True, "is_system": False, "mes": text, "extra": {}}
        elif mark == "A":
            behind = lines[n + 1 :]
            swipes = [other for other, (kind, _) in zip((t for _, t in behind), behind, strict=True) if kind == "S"]
            yield {"name": "Ada", "is_user": False, "is_system": False, "mes": text, "swipes": [*swipes, text],
                   "swipe_id": len(swipes), "gen_started": "2026-01-01", "extra": {"model": "apollo"}}  # fmt: skip


def _open_webui(lines: Lines) -> Iterator[list[dict[str, Any]]]:
    """One document: an array of one rating."""
    (asked, answered), (mark, comment) = [text for _, text in lines[:2]], lines[2]
    messages = [
        {"id": "m1", "parentId": None, "role": "user", "content": asked},
        {"id": "m2", "parentId": "m1", "role": "assistant", "content": answered, "model": "apollo"},
    ]
    chat = {"id": "c", "chat": {"history": {"messages": {one["id"]: one for one in messages}, "currentId": "m2"}}}
    data = {"rating": 1 if mark == "+" else -1, "model_id": "apollo", "reason": comment, "comment": ""}
    meta = {"chat_id": "c", "message_id": "m2"}
    yield [{"id": "f1", "type": "rating", "data": data, "meta": meta, "snapshot": {"chat": chat}}]


WRITERS: dict[str, Callable[[Lines], Iterator[Any]]] = {
    "claude-code": _claude, "codex": _codex, "pi": _pi, "gemini-cli": _gemini, "qwen-code": _qwen,
    "sillytavern": _sillytavern, "open-webui": _open_webui,
}  # fmt: skip
