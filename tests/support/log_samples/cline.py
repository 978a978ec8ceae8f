"""Task files of Cline and Roo Code."""

import json
from typing import Any

STATE = "<environment_details>\n# Current Time\n4/24/2026\n# Current Mode\n<slug>code</slug>\n{}</environment_details>"


def text(text_: str) -> dict[str, Any]:
    return {"type": "text", "text": text_}


def user(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks, text(STATE.format(""))], "ts": 1777073160794, **more}


def answer(*blocks: Any, model: str = "apollo", **more: Any) -> dict[str, Any]:
    info = {"modelId": model, "providerId": "openai", "mode": "act"}
    return {"role": "assistant", "content": list(blocks), "modelInfo": info, "metrics": {}, **more}


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments, "call_id": call_id}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


TASK = (
    user(
        text("<task>\nFix <it>\n</task>"),
        text("Files attached by the user:\n\n<file_content path=\"a.py\">\nx = 1\n</file_content>"),
        text("\n# task_progress RECOMMENDED\n\nWhen starting a new task, ..."),
    ),
    answer({"type": "thinking", "thinking": "hm", "signature": "x", "summary": []}, text("I look."), call("read_file")),
    user(text("[read_file for 'a.py'] Result:\n1 | x = 1")),
    answer(call("execute_command", "c2", command="pytest")),
    user(text("[execute_command for 'pytest'] Result:\nCommand failed with exit code 1.\nOutput:\n1 failed")),
    answer(call("write_to_file", "c3")),
    user(text("[write_to_file for 'a.py'] Result:\nThe user denied this operation and provided the following "
              "feedback:\n<feedback>\nNo, in b.py\n</feedback>")),
    answer(call("attempt_completion", "c4", result="Done")),
    user(text("[attempt_completion] Result:\nThe user has provided feedback on the results.\n"
              "<feedback>\nNow test it\n</feedback>"), text("# TODO LIST UPDATE REQUIRED - ...")),
    answer(text("I would.\n\n[Response interrupted by user]")),
    user(text("[TASK RESUMPTION] This task was interrupted 2 days ago. It may or may not be complete."),
         text("New instructions for task continuation:\n<user_message>\nGo on\n</user_message>")),
    answer(call("ask_followup_question", "c5", question="Sure?")),
    user(text("[ask_followup_question for 'Sure?'] Result:\n<answer>\nYes\n</answer>")),
    answer(text("Just words.")),
    user(text("[ERROR] You did not use a tool in your previous response! Please retry with a tool use.")),
    answer(text("All is well.")),
)  # fmt: skip
DOCUMENT = json.dumps(TASK).encode()
ROO_STATE = text(STATE.format("<model>apollo</model>\n"))
ROO = json.dumps(
    [
        {"role": "user", "content": [text("<task>\nFix it\n</task>"), ROO_STATE], "ts": 1},
        {"role": "assistant", "content": [text("<read_file>\n<path>a.py</path>\n</read_file>")], "ts": 2},
        {"role": "user", "content": [text("[read_file for 'a.py'] Result:"), text("<task> x = 1"), ROO_STATE], "ts": 3},
        {"role": "assistant", "content": [text("I run."), call("execute_command", "t1", command="rm a")], "ts": 4},
        {"role": "user", "content": [result("t1", '{"status":"denied","feedback":"Leave it"}'), ROO_STATE], "ts": 5},
        {"role": "assistant", "content": "Left.", "ts": 6},
        {"role": "user", "content": "## Summary: all is well", "isSummary": True, "condenseId": "c", "ts": 7},
        {"role": "user", "content": [text("<user_message>\nAnd now?\n</user_message>"), ROO_STATE], "ts": 8},
        {"role": "assistant", "content": [text("Nothing.")], "ts": 9},
    ]
).encode()
CLI = json.dumps(
    {
        "version": 1,
        "updated_at": "2026-01-01T00:00:03.000Z",
        "agent": "lead",
        "sessionId": "s1",
        "messages": [
            {"id": "u1", "role": "user", "content": [text('<user_input mode="act">Say hello</user_input>')], "ts": 1},
            {
                "id": "a1",
                "role": "assistant",
                "content": [text("Hello!"), {"type": "thinking", "thinking": "so"}],
                "modelInfo": {"id": "apollo", "provider": "x"},
            },
        ],
    }
).encode()
DRIFT = [
    user(text("<task>hi</task>"), {"type": "hologram"}, {"type": "image", "source": {}}),
    answer(text("hello"), mood="good"),
    {"role": "narrator", "content": "x"},
    user(),
    {"role": "user", "content": [], "isTruncationMarker": True},
]
PIECES = (
    b'{"version": 1, "sessionId": "s1", "messages": [',
    *(json.dumps(one).encode() + b",\n" for one in (*TASK, *json.loads(ROO), *DRIFT)),
    b'{"role": "user", "content": [{"type": "tool_result", "content": 7}, {"type": "text"}]},',
    b'{"role": "assistant", "content": [{"type": "tool_use"}]},',
    b'{"role": 7}]',
    b', "system_prompt": "be good"}',
    b"]",
    b"}",
    b'"',
    b" \n",
    b"tru",
)
