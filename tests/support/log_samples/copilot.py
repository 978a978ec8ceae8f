"""Events of Copilot's command line, and chats of Copilot in VS Code as a document and as a log of changes."""

import json
from typing import Any


def event(number: int, type: str, data: Any = None, **more: Any) -> bytes:
    record = {"type": type, "data": data or {}, "id": f"e{number}", "timestamp": "2026-07-20T05:13:54.687Z"}
    return json.dumps({**record, "parentId": f"e{number - 1}" if number > 1 else None, **more}).encode() + b"\n"


def asked(number: int, text: str, **data: Any) -> bytes:
    return event(number, "user.message", {"content": text, "transformedContent": f"<now/>{text}", **data})


def answered(number: int, text: str, *calls: tuple[str, str, Any], **data: Any) -> bytes:
    requests = [{"toolCallId": name, "name": tool, "arguments": args} for name, tool, args in calls]
    return event(number, "assistant.message", {"content": text, "toolRequests": requests, "messageId": "m", **data})


def done(number: int, call: str, **data: Any) -> bytes:
    return event(number, "tool.execution_complete", {"toolCallId": call, "success": True, **data})


EVENTS = (
    event(1, "session.start", {"sessionId": "s1", "producer": "copilot-agent", "copilotVersion": "1.0.71"}),
    event(2, "session.model_change", {"newModel": "apollo"}),
    event(3, "system.message", {"role": "system", "content": "You are the CLI"}),
    asked(4, "Fix it"),
    event(5, "assistant.turn_start", {"turnId": "0"}),
    answered(6, "I look.", ("c1", "bash", {"command": "pytest"}), reasoningText="hm", model="apollo"),
    event(7, "tool.execution_start", {"toolCallId": "c1", "toolName": "bash"}),
    done(8, "c1", result={"content": "1 passed\n<exited with exit code 0>", "detailedContent": "x"}),
    answered(9, "", ("c2", "edit", '{"path": "a"}')),
    event(10, "tool.execution_complete",
          {"toolCallId": "c2", "success": False, "error": {"message": "The user said no", "code": "rejected"}}),
    answered(11, "Sub", parentToolCallId="c2"),
    answered(12, "Done."),
    event(13, "abort", {"reason": "user initiated"}),
    asked(14, "No, use pnpm"),
    asked(15, "<skill>pnpm</skill>", source="skill-pnpm"),
    answered(16, "I do."),
    event(17, "session.snapshot_rewind", {"upToEventId": "e12", "eventsRemoved": 4}),
    asked(18, "And now?"),
    answered(19, "Nothing."),
    event(20, "session.compaction_complete", {"success": True, "summaryContent": "Summary: all is well"}),
    asked(21, "Commit"),
    answered(22, "Committed."),
    event(23, "session.shutdown", {}),
)  # fmt: skip
DRIFT = (
    event(30, "hologram.shown"),
    asked(31, "hi", mood="good"),
    answered(32, "hello", model="other"),
    done(33, "c", result=[1]),
    asked(34, " "),
)
BROKEN = (
    event(40, "assistant.message", 7),
    answered(41, "", ("c", "", {})),
    b'{"type": 7}\n',
    b"not JSON\n",
    b"\n",
    b'{"type": "user.mess',
)
LINES = (*EVENTS, *DRIFT, *BROKEN)


def round_(text: str, *calls: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"response": text, "toolCalls": [{"id": i, "name": n, "arguments": '{"q": 1}'} for i, n in calls], **more}


def node(text: str, **more: Any) -> dict[str, Any]:
    return {"type": 2, "text": text, **more}


TREE = {"$mid": 20, "content": [{"$mid": 23, "value": {"node": {"type": 1, "children": [
    node("a.py"), {"type": 1, "children": [node("b.py", lineBreakBefore=True)]}]}}}]}  # fmt: skip
RESULT = {
    "timings": {},
    "metadata": {
        "renderedUserMessage": [
            {"type": 1, "text": '<attachments>\n<attachment id="a">x = 1</attachment>\n</attachments>\n<context>now'},
            {"type": 1, "text": "</context>\n<userRequest>\nFix it\n</userRequest>"},
        ],
        "toolCallRounds": [
            round_("I look.", ("c1", "read_file"), thinking={"id": "t", "text": ["h", "m"]}),
            round_("", ("c2", "list")),
            round_(""),
            round_("Done."),
        ],
        "toolCallResults": {"c1": {"content": [{"$mid": 21, "value": "x = 1"}]}, "c2": TREE},
    },
}
REQUESTS: list[dict[str, Any]] = [
    {"requestId": "r1", "message": {"text": "Fix it", "parts": []}, "response": [{"value": "shown"}],
     "responseId": "x1", "result": RESULT, "modelId": "customoai/apollo", "vote": 1},
    {"requestId": "r2", "message": {"text": "Again"}, "response": [{"value": "So "}, {"value": "it is."}],
     "modelId": "copilot/auto", "result": {"metadata": {"resolvedModel": "apollo"}}, "vote": 0},
    {"requestId": "r3", "message": {"text": "Undone"}, "modelId": "customoai/apollo", "shouldBeRemovedOnSend": {},
     "result": {"metadata": {"toolCallRounds": [round_("Taken back.")]}}},
    {"requestId": "r4", "message": {"text": "Stop"}, "modelId": "customoai/apollo", "isCanceled": True,
     "result": {"metadata": {"toolCallRounds": [round_("I beg")]}, "errorDetails": {"message": "Canceled"}}},
    {"requestId": "r5", "message": {"text": "Where?"}, "modelId": "customoai/apollo",
     "response": [{"value": "In "}, {"kind": "inlineReference", "name": "a.py"}]},
    {"requestId": "r6", "message": {"text": "More"}, "modelId": "copilot/gpt-5", "response": [{"value": "Theirs."}]},
]  # fmt: skip
FACTS = {"version": 3, "requesterUsername": "me", "responderUsername": "GitHub Copilot"}
CHAT = json.dumps({**FACTS, "requests": REQUESTS, "sessionId": "s1", "customTitle": "t"}, indent=2).encode()


def change(kind: int, *at: str | int, **more: Any) -> bytes:
    return json.dumps({"kind": kind, "k": list(at), **more}).encode() + b"\n"


CHANGES = (
    json.dumps({"kind": 0, "v": {**FACTS, "sessionId": "s1", "requests": []}}).encode() + b"\n",
    change(2, "requests", v=[{"requestId": "r1", "message": {"text": "Fix it"}, "modelId": "x/apollo"}]),
    change(2, "requests", 0, "response", v=[{"value": "shown"}], i=3),
    change(1, "requests", 0, "result", v={"metadata": {"toolCallRounds": [round_("Done.")]}}),
    change(1, "requests", 0, "vote", v=0),
    change(2, "requests", v=[{"requestId": "r2", "message": {"text": "Test it"}}]),
    change(1, "requests", 1, "result", v={"metadata": {"toolCallRounds": [round_("Tested.")]}}),
    change(2, "requests", v=[{"requestId": "r3", "message": {"text": "Test it twice"}}], i=1),
    change(1, "requests", 1, "isCanceled", v=False),
    change(1, "requests", 1, "result", v={"metadata": {"toolCallRounds": [round_("Twice.")]}}),
    change(3, "inputState"),
    change(7, "x"),
)
CHANGE_LINES = (
    *CHANGES,
    change(2, "requests", v=7),
    change(1, "requests", 1, "result", v={"metadata": {"toolCallRounds": [{"toolCalls": [{}]}]}}),
    json.dumps({"kind": 0, "v": {**FACTS, "sessionId": "s2", "requests": REQUESTS}}).encode() + b"\n",
    b'{"kind": "one"}\n',
    b"not JSON\n",
    b"\n",
    b'{"kind',
)
CHAT_PIECES = (
    b'{"version": 3, "responderUsername": "GitHub Copilot",\n"requests": [',
    *(json.dumps(one).encode() + b",\n" for one in REQUESTS),
    b'{"requestId": 7},',
    b'{"requestId": "b", "message": {"text": "q"}, "response": [7, {"value": 7}, null]}]',
    b', "sessionId": "s1"}',
    b"]",
    b"}",
    b'"',
    b" \n",
    b"tru",
)
