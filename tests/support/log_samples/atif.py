"""A trajectory in ATIF, whole and in pieces."""

import json

CALL = {"tool_call_id": "c1", "function_name": "ls", "arguments": {"of": "."}}
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {}}}


def step(number: int, source: str, message: object, **more: object) -> dict[str, object]:
    return {"step_id": number, "timestamp": "2025-10-11T10:30:00Z", "source": source, "message": message, **more}


STEPS = (
    step(1, "system", "You are terse."),
    step(2, "user", "Fix it"),
    step(
        3, "agent", "I look.", model_name="apollo", reasoning_content="hm", tool_calls=[CALL],
        observation={"results": [{"source_call_id": "c1", "content": "a.py"}]},
        metrics={"prompt_tokens": 9, "completion_token_ids": [1, 2]},
    ),
    step(4, "agent", [{"type": "text", "text": "Done."}]),
    step(5, "user", "And now?"),
    step(6, "agent", "ls -l", observation={"results": [{"content": [{"type": "text", "text": "a.py 7"}]}]}),
    step(7, "agent", "Enough.", model_name="other"),
    step(8, "system", "Context was summarised."),
)  # fmt: skip
AGENT = {"name": "terminus-2", "version": "2.0", "model_name": "apollo", "tool_definitions": [TOOL]}
DOCUMENT = {
    "schema_version": "ATIF-v1.7", "session_id": "s1", "agent": AGENT, "steps": list(STEPS), "notes": "a run",
    "final_metrics": {"total_steps": 8}, "subagent_trajectories": [{"schema_version": "ATIF-v1.7", "steps": []}],
}  # fmt: skip
OLD = {
    "schema_version": "ATIF-v1.0",
    "session_id": "s0",
    "agent": {"name": "a", "version": "1", "model_name": "apollo"},
}
DRIFT = {
    **OLD,
    "schema_version": "ATIF-v9",
    "mood": "good",
    "steps": [
        step(1, "user", "go on", is_copied_context=True),
        step(2, "agent", "I went", is_copied_context=True),
        step(3, "oracle", "?"),
        step(4, "user", "more"),
        step(5, "agent", "", llm_call_count=0, tool_calls=[CALL], observation={"results": [{"content": "b.py"}]}),
        step(6, "agent", "Fine.", feeling="well"),
        {"step_id": "seven", "source": "agent", "message": "x"},
    ],
}
PIECES = (
    b'{"schema_version": "ATIF-v1.7", "session_id": "s1",\n',
    b'"agent": ' + json.dumps(AGENT).encode() + b', "steps": [',
    *(json.dumps(one).encode() + b",\n" for one in (*STEPS, *DRIFT["steps"])),  # type: ignore[misc]
    b'{"step_id": "seven", "source": "agent"},',
    b'"x"]',
    b', "final_metrics": {}, "subagent_trajectories": [{}], "mood": 1}',
    b"]",
    b"}",
    b'{"',
    b" \n",
)
