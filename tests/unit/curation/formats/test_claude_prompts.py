"""What the person asked in a session of Claude Code: typed while the agent ran, as a command, with files and notes.

The shapes are those of versions 2.1.39 (no attachments in the log) to 2.1.286 as public fixtures and readers show them.
"""

import json
from typing import Any

import pytest
from support.readings import Reading, evidence, examples, learned, read

from apollod.curation.formats.claude_code import READER


def record(number: int, kind: str, after: int | None = None, **more: Any) -> bytes:
    after = number - 1 if after is None else after
    place = {"uuid": f"u{number}", "parentUuid": f"u{after}" if after else None}
    return json.dumps({"type": kind, "sessionId": "s", "version": "2.1.39", **place, **more}).encode() + b"\n"


def user(number: int, content: Any, **more: Any) -> bytes:
    return record(number, "user", message={"role": "user", "content": content}, **more)


def answer(number: int, text: str = "", call: str = "", **more: Any) -> bytes:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "ls"}}] if call else []
    message = {"role": "assistant", "id": f"m{number}", "model": "apollo", "content": blocks}
    return record(number, "assistant", message=message, **more)


def result(number: int, call: str, **more: Any) -> bytes:
    return user(number, [{"type": "tool_result", "tool_use_id": call, "content": "done"}], **more)


def attachment(number: int, kind: str, **fields: Any) -> bytes:
    return record(number, "attachment", attachment={"type": kind, **fields})


def queue(operation: str, content: str = "", **more: Any) -> bytes:
    more |= {"content": content} if content else {}
    return json.dumps({"type": "queue-operation", "operation": operation, "sessionId": "s", **more}).encode() + b"\n"


def turns(reading: Reading) -> list[str]:
    """The conversation of the last example, whatever is learned of it."""
    assert not reading.bad
    last = examples(reading)[-1]
    assert not isinstance(last, str), last
    return [turn.split("{")[0].replace("assistant*:", "assistant:") for turn in last]


ASKED = (user(1, "migrate the loader"), answer(2, call="t1"))
AFTER = ["user: migrate the loader", "assistant: Bash", "tool: done", "user: no, the other file", "assistant: I see"]
TYPED = "no, the other file"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((queue("enqueue", TYPED), queue("remove"), result(3, "t1"), answer(4, "I see")), id="2.1.39"),
        pytest.param((queue("enqueue", TYPED), result(3, "t1"), queue("remove"), answer(4, "I see")), id="behind"),
        pytest.param(
            (
                queue("enqueue", TYPED), result(3, "t1"), queue("remove", TYPED, reason="absorbed_mid_turn"),
                attachment(4, "queued_command", prompt=TYPED, commandMode="prompt", origin={"kind": "human"}),
                answer(5, "I see"),
            ), id="2.1.246",
        ),
        pytest.param(
            (
                queue("enqueue", TYPED), result(3, "t1"),
                attachment(4, "queued_command", prompt=[{"type": "text", "text": TYPED}], commandMode="prompt"),
                queue("remove", TYPED), answer(5, "I see"),
            ), id="attachment-first",
        ),
        pytest.param(
            (
                queue("enqueue", TYPED), result(3, "t1"), queue("remove", TYPED),
                attachment(4, "queued_command", prompt=TYPED, commandMode="prompt"), user(5, TYPED), answer(6, "I see"),
            ), id="also-a-user-record",
        ),
        pytest.param(
            (attachment(4, "queued_command", prompt=TYPED), result(3, "t1"), answer(5, "I see")), id="before-the-result"
        ),
        pytest.param(
            (queue("enqueue", TYPED), queue("remove", TYPED), result(3, "t1"), user(4, TYPED), answer(5, "I see")),
            id="removed-then-a-user-record",
        ),
    ],
)  # fmt: skip
def test_a_message_typed_while_the_agent_ran_is_one_turn_behind_the_open_calls(lines: tuple[bytes, ...]) -> None:
    assert turns(read(READER, *ASKED, *lines)) == AFTER


def test_it_is_the_strongest_correction_there_is() -> None:
    reading = read(
        READER, *ASKED, result(3, "t1"), answer(4, "I move it.", "t2"), queue("enqueue", TYPED), queue("remove"),
        result(5, "t2"), answer(6, "I see"),
    )  # fmt: skip
    first, second = reading.moments
    assert ("correction", "correction", TYPED) in evidence(first)
    prompt = second.messages[-2]
    assert [signal.kind for signal in prompt.signals] == ["mid-run"] and prompt.prompt
    later = read(READER, *ASKED, result(3, "t1"), answer(4, "I move it."), user(5, TYPED), answer(6, "I see"))
    assert not later.moments[1].messages[-2].signals


def test_what_left_the_queue_otherwise_is_no_turn_of_its_own() -> None:
    """It became a prompt with a record, went back to the user, was taken out, or was for the program."""
    waits = queue("enqueue", TYPED), queue("enqueue", "and then")
    gone = queue("popAll"), queue("enqueue", "/mcp"), queue("remove")
    gone += queue("enqueue", "x"), queue("remove", reason="cancelled")
    reading = read(READER, *ASKED, *waits, result(3, "t1"), queue("dequeue"), user(4, TYPED), *gone, answer(5, "I see"))
    assert turns(reading) == AFTER
    assert reading.counts["dropped: queue-operation: popAll"] == 1
    notified = queue("enqueue", "<task-notification>"), queue("remove"), result(3, "t1"), answer(4, "I see")
    assert turns(read(READER, *ASKED, *notified)) == [*AFTER[:3], AFTER[-1]]


def test_a_log_that_is_read_on_gives_the_same() -> None:
    """The queue is part of what is remembered of the log."""
    lines = *ASKED, queue("enqueue", TYPED), queue("remove"), result(3, "t1"), answer(4, "I see")
    whole = read(READER, *lines)
    from apollod.curation.formats.reader import Cursor, Limits

    for cut in range(1, len(lines)):
        head = b"".join(lines[:cut])
        first = READER.fold(Cursor(), head, False, Limits())
        again = READER.recall(first.cursor, [head], Limits())
        rest = READER.fold(again, b"".join(lines[cut:]), True, Limits())
        assert [*first.items, *rest.items] == whole.moments, cut


def test_a_command_and_what_it_stands_for_are_the_prompt() -> None:
    name = "<command-message>fix</command-message>\n<command-name>/fix</command-name>"
    expansion = user(2, [{"type": "text", "text": "Fix what is broken."}], isMeta=True)
    reading = read(READER, user(1, name), expansion, answer(3, "fixed"))
    assert turns(reading) == [f"user: {name}", "user: Fix what is broken.", "assistant: fixed"]
    assert [said.prompt for said in reading.moments[0].messages] == [True, False, False]


def test_a_command_that_the_program_carried_out_is_no_turn() -> None:
    lines = (
        user(1, "hi"), answer(2, "hello"), user(3, "<local-command-caveat>Caveat: x", isMeta=True),
        user(4, "<command-name>/model</command-name>"), user(5, "<local-command-stdout>set</local-command-stdout>"),
        user(6, "go on"), answer(7, "gladly"),
    )  # fmt: skip
    reading = read(READER, *lines)
    assert turns(reading) == ["user: hi", "assistant: hello", "user: go on", "assistant: gladly"]
    assert reading.moments[0].then is not None and reading.moments[0].then.message["content"] == "go on"
    silent = read(READER, *lines[:2], user(3, "<command-name>/clear</command-name>"), user(4, "go on"), answer(5, "ok"))
    assert turns(silent)[-3:] == ["assistant: hello", "user: go on", "assistant: ok"]


def test_a_skill_that_the_model_called_is_context_and_no_prompt() -> None:
    skill = user(4, [{"type": "text", "text": "Base directory for this skill: /w"}], isMeta=True)
    reading = read(READER, *ASKED, result(3, "t1"), skill, answer(5, "I see"))
    assert turns(reading)[2:] == ["tool: done", "user: Base directory for this skill: /w", "assistant: I see"]
    assert len(reading.moments) == 1


def test_files_that_the_user_names_are_context() -> None:
    file = attachment(
        2, "file", filename="/w/a.py", content={"type": "text", "file": {"filePath": "/w/a.py", "content": "x = 1"}}
    )
    folder = attachment(3, "directory", path="/w", content="a.py")
    lines = attachment(4, "selected_lines_in_ide", filename="/w/a.py", content="x", lineStart=1, lineEnd=1)
    other = attachment(5, "skill_listing", content="- skills")
    reading = read(READER, user(1, "look at @a.py"), file, folder, lines, other, answer(6, "seen"))
    said = examples(reading)[0]
    assert said[0] == "user: look at @a.py" and said[-1] == "assistant*: seen"
    assert "x = 1" in said[1] and "a.py" in said[2] and "selected" in said[3] and len(said) == 5
    assert reading.counts == {"dropped: attachment: skill_listing": 1}


def test_what_hooks_and_memory_files_add_is_stripped_and_kept_beside() -> None:
    reading = read(
        READER, user(1, "hi"),
        attachment(2, "hook_additional_context", content=["you met before"], hookName="UserPromptSubmit"),
        attachment(3, "nested_memory", path="/w/CLAUDE.md", content={"content": "be kind"}),
        attachment(4, "hook_success", content="ran", hookEvent="PostToolUse"),
        user(5, "<system-reminder>the date is today</system-reminder>", isMeta=True), answer(6, "hello"),
    )  # fmt: skip
    assert turns(reading) == ["user: hi", "assistant: hello"]
    removed = learned(reading.moments[0]).removed
    assert [one.why for one in removed] == ["reminder"] * 3
    assert "you met before" in removed[0].text and "be kind" in removed[1].text


def test_notifications_and_shell_commands_of_the_user_are_context() -> None:
    note = "<task-notification>\n<status>completed</status>\n</task-notification>"
    shell = user(1, "<bash-input>ls</bash-input>")
    reading = read(READER, shell, user(2, "hi"), answer(3, "yes"), user(4, note), answer(5, "done"))
    assert len(reading.moments) == 1, "no person wrote it, so no turn begins"
    assert turns(reading)[0] == "user: <bash-input>ls</bash-input>" and turns(reading)[-2] == f"user: {note}"
    peer = attachment(4, "queued_command", prompt="from a peer", commandMode="prompt", origin={"kind": "peer"})
    said = read(READER, user(1, "hi"), answer(2, call="t1"), result(3, "t1"), peer, answer(5, "done"))
    assert not any(one.signals for one in said.moments[0].messages) and len(said.moments) == 1


@pytest.mark.parametrize("agent", ["acompact-1f2e", "aprompt_suggestion-9"])
def test_agents_that_write_for_the_program_are_not_learned(agent: str) -> None:
    of_program, of_agent = {"isSidechain": True, "agentId": agent}, {"isSidechain": True, "agentId": "a1"}
    reading = read(READER, user(1, "summarise", **of_program), answer(2, "it was so", **of_program))
    assert not reading.moments
    assert reading.counts == {"dropped: an agent that the program asks for summaries and the like": 2}
    real = read(READER, user(1, "look", **of_agent), answer(2, "seen", **of_agent))
    assert examples(real, sidechains=True) == [["user: look", "assistant*: seen"]]


def test_a_subagent_within_the_log_of_its_session_leaves_the_rest_as_it_is() -> None:
    """As version 1 writes it: its records have a tree of their own between those of the session."""
    task, aside = answer(2, "I ask one.", "t1"), {"isSidechain": True}
    side = user(3, "look for it", after=0, **aside), answer(4, "found", **aside)
    reading = read(READER, user(1, "fix it"), task, *side, result(5, "t1", after=2), answer(6, "fixed"))
    assert turns(reading) == ["user: fix it", "assistant: I ask one. Bash", "tool: done", "assistant: fixed"]
    assert reading.counts == {"dropped: a subagent within the log of its session": 2}
