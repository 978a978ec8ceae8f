"""What is taken out of conversations, that it is all said, and that nothing else changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.curation.moments import Learned, Rules, learn_record
from apollod.curation.stripping import Stripping, restored, strip
from apollod.wire.records import decode_record, message_form, parse_line

USER = {"content": "<memory>likes tea</memory>\nWhat to drink?", "role": "user"}
SYSTEM = {"content": "You are a waiter.", "role": "system"}
ANSWER = {"content": "Tea, <memory>of course</memory>.", "role": "assistant"}


@pytest.mark.parametrize(
    ("level", "kept", "why"),
    [
        ("none", ["You are a waiter.", USER["content"], ANSWER["content"]], []),
        ("memory", ["You are a waiter.", "What to drink?", ANSWER["content"]], ["memory"]),
        ("system", ["What to drink?", ANSWER["content"]], ["system", "memory"]),
        ("all", ["What to drink?", ANSWER["content"]], ["tools", "system", "memory"]),
    ],
)
def test_levels(level: str, kept: list[str], why: list[str]) -> None:
    messages, tools, removed = strip([SYSTEM, USER, ANSWER], Stripping(level), [{"name": "f"}])  # type: ignore[arg-type]
    assert [message["content"] for message in messages] == kept
    assert [one.why for one in removed] == why
    assert bool(tools) == (level != "all")


def test_what_programs_say_about_a_message_is_taken_out() -> None:
    """As OpenClaw puts it before the message, and as hooks of Gemini CLI, Codex and memory plugins wrap it."""
    told = 'Conversation info (untrusted metadata):\n```json\n{\n  "message_id": "87"\n}\n```\n\n'
    sender = 'Sender (untrusted metadata):\n```json\n{\n  "name": "Xiao"\n}\n```\n\n'
    reply = 'Replied message (untrusted, for context):\n```json\n{"body": "x"}\n```\n\n'
    hooks = (
        '<hook_context>a</hook_context><hook_prompt id="1">b</hook_prompt><claude-mem-context>c</claude-mem-context>'
    )
    message = {"content": told + sender + reply + "no, the other one" + hooks, "role": "user"}
    (kept, _), _, removed = strip([message, ANSWER], Stripping("memory"))
    assert kept["content"] == reply + "no, the other one"
    assert [one.why for one in removed] == ["metadata", "metadata", "reminder", "reminder", "memory"]
    assert restored([kept, ANSWER], removed) == [message, ANSWER]
    assert strip([message], Stripping("none"))[0] == [message]
    unended = {"content": sender[:-6] + "text", "role": "user"}
    assert strip([unended], Stripping("memory"))[0] == [unended]


def test_marks_patterns_and_messages_of_which_nothing_is_left() -> None:
    marked = {"content": "secret rule", "role": "user", "strip": True}
    only = {"content": "<system-reminder>be brief</system-reminder> ", "role": "user"}
    tool = {"content": "<memory>m</memory>", "role": "tool"}
    messages, _, removed = strip([marked, only, USER, tool, ANSWER], Stripping("memory", ("dr[a-z]+",)))
    assert [m["content"] for m in messages] == ["What to ?", "", ANSWER["content"]], "a call keeps its result"
    assert [(one.place, one.at, one.why, one.role) for one in removed] == [
        (0, -1, "marked", "user"), (0, -1, "reminder", "user"), (0, 0, "memory", ""), (0, 8, "pattern", ""),
        (1, 0, "memory", ""),
    ]  # fmt: skip


texts = st.lists(
    st.sampled_from(
        ["<memory>", "</memory>", "<memory a=1>", "<system-reminder>", "</system-reminder>", " ", "x", "é\n"]
    ),
    max_size=8,
).map("".join)
turns = st.fixed_dictionaries({"content": texts, "role": st.sampled_from(["user", "assistant", "system", "tool"])})


@given(
    messages=st.lists(turns, max_size=6),
    level=st.sampled_from(["none", "memory", "system", "all"]),
    patterns=st.sampled_from([(), ("x+",), ("x|<mem",)]),
)
def test_what_was_there_can_be_put_together_again(messages: list, level: str, patterns: tuple[str, ...]) -> None:
    kept, _, removed = strip(messages, Stripping(level, patterns))  # type: ignore[arg-type]
    assert restored(kept, removed) == messages
    again, _, more = strip(kept, Stripping(level))  # type: ignore[arg-type]
    assert patterns or not removed or (len(again) <= len(kept) and len(more) <= len(removed))


def test_tags_that_are_never_closed_cost_no_more_than_their_length() -> None:
    """Quadratic, this would take minutes."""
    text = "<memory>" * 100_000
    assert strip([{"content": text, "role": "user"}], Stripping())[0][0]["content"] == text


def test_a_record_that_is_given_is_stripped_too() -> None:
    line = {"messages": [{**SYSTEM, "strip": True}, USER, ANSWER], "tier": "direct"}
    learned = learn_record(parse_line(json.dumps(line).encode()), Rules())
    assert isinstance(learned, Learned) and learned.record.tier == "direct"
    record = decode_record(learned.record.canonical)
    assert [m.content for m in record.messages] == ["What to drink?", ANSWER["content"]]  # type: ignore[union-attr]
    assert len(learned.removed) == 2
    bare = parse_line(json.dumps({"messages": [{"role": "user", "content": "What to drink?"}, ANSWER]}).encode())
    assert learned.record.id == bare.id, "what is stripped is what is trained without"


def test_marks_are_for_what_is_said_to_the_model() -> None:
    assert "strip" not in message_form({**ANSWER, "strip": True}, "it")
    assert message_form({**SYSTEM, "strip": "yes"}, "it") == SYSTEM
