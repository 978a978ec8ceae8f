"""Chats of Gemini CLI: lines, and the same in one document."""

import json

FACTS = {
    "sessionId": "s1",
    "projectHash": "h1",
    "startTime": "2026-07-17T09:00:00Z",
    "lastUpdated": "2026-07-17T09:00:02Z",
}


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def message(id: str, type: str, content: object, **more: object) -> dict[str, object]:
    model = {"model": "apollo", "thoughts": [], "tokens": None} if type == "gemini" else {}
    return {"id": id, "timestamp": "2026-07-17T09:00:01Z", "type": type, "content": content, **model, **more}


CALL = {"id": "c1", "name": "ls", "args": {"of": "."}, "status": "executing", "timestamp": ""}
RESULT = [{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.py"}}}]
MESSAGES = (
    message("m1", "user", [{"text": "Fix it"}]),
    message("m2", "gemini", "I look.", toolCalls=[CALL], thoughts=[{"subject": "Plan", "description": "hm"}]),
    message("m3", "info", "Update available"),
    message(
        "m4", "gemini", "", toolCalls=[{**CALL, "id": "c2", "status": "error", "result": [{"text": "no such file"}]}]
    ),
    message("m5", "gemini", [{"text": "so", "thought": True}, {"text": "Done."}]),
    message("m6", "user", "And now?"),
    message("m7", "gemini", "Nothing."),
)
FINISHED = message("m2", "gemini", "I look.", toolCalls=[{**CALL, "status": "success", "result": RESULT}])
LINES = (
    line(**FACTS),
    *(line(**one) for one in MESSAGES[:2]),
    line(**FINISHED),
    *(line(**one) for one in MESSAGES[2:]),
    line(**{"$set": {"lastUpdated": "2026-07-17T09:00:03Z"}}),
    line(**{"$rewindTo": "m6"}),
    line(**message("m8", "user", "Test it")),
    line(**message("m9", "gemini", "It passes.")),
)
DRIFT = (
    line(**{"$set": {"kind": "subagent", "mood": "good"}}),
    line(**message("n1", "hologram", "?")),
    line(id="n2", type="user", content=[{"inlineData": {"data": "AA"}}], more=1),
    line(summary="about files"),
    line(**{"$set": {"messages": [MESSAGES[0], FINISHED]}}),
)
BROKEN = (
    line(id="b1", type="gemini", content="", toolCalls=[{"id": "c"}]),
    line(id=7, type="user", content="q"),
    line(**{"$rewindTo": ["m1"]}),
    b"not JSON\n",
    b'{"id": "b2", "content": ' + b"[" * 3000 + b"\n",
    b'{"id',
)
ALL = (*LINES, *DRIFT, *BROKEN)
DOCUMENT = json.dumps(
    {**FACTS, "messages": [MESSAGES[0], FINISHED, *MESSAGES[2:]], "summary": "about files", "kind": "main"}, indent=2
).encode()
PIECES = (
    b'{"sessionId": "s1", "projectHash": "h1", "kind": "main",\n',
    b'"messages": [',
    *(json.dumps(one).encode() + b",\n" for one in (*MESSAGES[:2], FINISHED, *MESSAGES[2:])),
    b'{"id": 7},',
    b'{"id": "b1", "type": "user", "content": "q"}]',
    b', "summary": "x"}',
    b"]",
    b"}",
    b"[",
    b'"',
    b"\\",
    b" \n",
    b"tru",
)
