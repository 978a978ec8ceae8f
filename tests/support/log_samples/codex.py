"""Lines of Codex rollouts, as codex-rs writes them."""

import json


def line(type: str, payload: object, **more: object) -> bytes:
    return (
        json.dumps({"timestamp": "2026-08-10T20:05:52.101Z", "type": type, "payload": payload, **more}).encode() + b"\n"
    )


def item(type: str, **fields: object) -> bytes:
    return line("response_item", {"type": type, **fields})


def event(type: str, **fields: object) -> bytes:
    return line("event_msg", {"type": type, **fields})


def said(role: str, text: str, **fields: object) -> bytes:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}], **fields)


META = line(
    "session_meta",
    {
        "id": "s1", "timestamp": "2026-08-10T20:05:50Z", "cwd": "/w", "cli_version": "0.140.0", "source": "cli",
        "model_provider": "vllm", "base_instructions": {"text": "You are Codex."}, "git": None,
    },
)  # fmt: skip
CALL = item("function_call", name="exec_command", arguments='{"cmd": "ls"}', call_id="c1")
PATCH = item("custom_tool_call", status="completed", call_id="c2", name="apply_patch", input="*** Begin Patch")
SESSION = (
    META,
    line("turn_context", {"turn_id": "t1", "model": "apollo", "cwd": "/w"}),
    said("developer", "<permissions instructions>never ask</permissions instructions>"),
    said("user", "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"),
    said("user", "Fix it"),
    event("user_message", message="Fix it"),
    item("reasoning", id="rs_1", summary=[], content=[{"type": "reasoning_text", "text": "hm"}]),
    said("assistant", "I look.", id="msg_1"),
    CALL,
    event("exec_command_end", call_id="c1", aggregated_output="a.py\n", exit_code=0),
    item("function_call_output", call_id="c1", output="a.py"),
    PATCH,
    item("custom_tool_call_output", call_id="c2", output='{"output": "no such file", "metadata": {"exit_code": 1}}'),
    item("reasoning", id="rs_2", summary=[{"type": "summary_text", "text": "so"}], encrypted_content="gAAA"),
    said("assistant", "Done.", id="msg_2"),
    event("token_count", info={"last_token_usage": {"input_tokens": 9}}),
    event("task_complete", turn_id="t1"),
    line("turn_context", {"turn_id": "t2", "model": "other"}),
    said("user", "Which files?"),
    said("assistant", "None.", id="msg_3"),
    event("thread_rolled_back", num_turns=1),
    line("turn_context", {"turn_id": "t3", "model": "apollo"}),
    said("user", "Run the tests"),
    item("reasoning", summary=[], encrypted_content="gAAA"),
    said("assistant", "I run", id="msg_4"),
    event("turn_aborted", reason="interrupted"),
    line(
        "compacted",
        {
            "message": "", "window_id": "w", "replacement_history": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Run the tests"}]},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "So far: fixed"}]},
                {"type": "compaction", "encrypted_content": "gAAA"},
            ],
        },
    ),
    said("assistant", "They pass.", id="msg_5"),
    line("world_state", {"any": "thing"}),
)  # fmt: skip
DRIFT = (
    line("from-the-future", {"a": 1}),
    item("hologram", id="h1"),
    event("sound_played", file="a.wav"),
    said("assistant", "and more", ordinal=7, phase="final_answer"),
    item("local_shell_call", call_id="c3", status="completed", action={"type": "exec", "command": ["ls"], "env": None}),
    item("function_call_output", call_id="c3", output={"content": "Exit code: 2\nno", "success": False}),
    line("compacted", {"message": "What was done"}),
    said("user", "Go on"),
    said("assistant", "Yes."),
)
OLD = (
    b'{"id": "s0", "timestamp": "2025-06-01T00:00:00Z", "instructions": "Be brief.", "git": {}}\n',
    b'{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}\n',
    b'{"record_type": "state"}\n',
    b'{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}\n',
)
BARE = (
    line("session_meta", {"session_id": "s7"}),
    line("response_item", {"role": "user", "content": [{"type": "input_text", "text": "q"}]}),
    line("response_item", {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}),
)
BROKEN = (
    item("function_call", name="f", arguments='{"cmd": ', call_id="c9"),
    item("function_call", arguments="{}", call_id="c9"),
    item("message", role=7),
    line("event_msg", {"type": "thread_rolled_back", "num_turns": "two"}),
    line("session_meta", []),
    b'{"type": "response_item"}\n',
    b"not JSON\n",
    b"\n",
    b"[" * 150 + b"\n",
    b'{"type": "response_item", "payload": ' + b"[" * 3000 + b"\n",
    b'{"type',
)
LINES = (*SESSION, *DRIFT, *OLD, *BARE, *BROKEN)
