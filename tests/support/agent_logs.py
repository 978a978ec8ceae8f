"""Logs of agents for tests, as small as they can be and still be real."""

import json
from collections.abc import Sequence


def claude_line(session: str, number: int, role: str, text: str) -> bytes:
    """One record of Claude Code."""
    message = {"role": role, "content": text}
    if role == "assistant":
        message |= {"id": f"r-{session}-{number}", "model": "apollo"}
    record = {
        "type": role, "uuid": f"{session}-{number}", "parentUuid": f"{session}-{number - 1}" if number > 1 else None,
        "sessionId": session, "version": "2.1.1", "isSidechain": False, "message": message,
    }  # fmt: skip
    return json.dumps(record).encode() + b"\n"


def claude_record(uuid: str, after: str, role: str, content: object) -> bytes:
    """One record of Claude Code, with its place in the tree; of an answer, the only one."""
    message = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": f"m-{uuid}", "model": "apollo"}
    return json.dumps(
        {"type": role, "uuid": uuid, "parentUuid": after or None, "sessionId": "s", "message": message}
    ).encode() + b"\n"  # fmt: skip


def session(name: str, turns: Sequence[str], first: int = 1) -> bytes:
    """A session of Claude Code in which each turn is a question and an answer; `first`: number of its first record."""
    return b"".join(
        claude_line(name, first + 2 * n + m, role, f"{verb} {turn}")
        for n, turn in enumerate(turns)
        for m, (role, verb) in enumerate((("user", "ask"), ("assistant", "answer")))
    )


def gemini_chat(*turns: str) -> bytes:
    """A chat of Gemini CLI, which writes all of it anew at each turn."""
    messages = [
        {"id": f"{turn}{role}", "type": role, "content": f"{verb} {turn}", "timestamp": "2026-11-22T10:00:00Z"}
        for turn in turns
        for role, verb in (("user", "ask"), ("gemini", "answer"))
    ]
    return json.dumps({"sessionId": "g", "projectHash": "h", "messages": messages}, indent=2).encode()
