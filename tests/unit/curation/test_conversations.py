"""From the log of a session to what is learned of it."""

import json
from typing import Any

import msgspec
import pytest
from support.reader_samples import CLAUDE_CODE

from apollod.curation.conversation import Moment
from apollod.curation.formats.claude_code import READER
from apollod.curation.formats.reader import Bad, Cursor, Limits
from apollod.curation.formats.session_reader import SessionReader
from apollod.curation.moments import Learned, Rules, learn
from apollod.wire.records import decode_record, parse_line

CLEAN = CLAUDE_CODE[:-6]  # without lines that are none


def moments(*lines: bytes, end: bool = True) -> list[Moment]:
    folded = READER.fold(Cursor(), b"".join(lines), end, Limits())
    assert not any(isinstance(item, Bad) for item in folded.items)
    return [item for item in folded.items if isinstance(item, Moment)]


def learned(moment: Moment, **rules: Any) -> Learned:
    result = learn(moment, Rules(**rules))
    assert isinstance(result, Learned), result
    return result


def shown(moment: Moment) -> list[str]:
    """Role and content of each message, with a star at what is learned."""
    messages = decode_record(learned(moment).record.canonical).messages  # type: ignore[union-attr]
    return [f"{m.role}{'*' * m.weight if m.role == 'assistant' else ''}: {m.content}" for m in messages]


def test_a_turn_is_one_example_with_its_calls_and_what_came_before() -> None:
    first, second = (one for one in moments(*CLEAN) if not one.taken_back)
    assert shown(first) == ["user: Fix it", "assistant*: I look.", "tool: a.py", "assistant*: Done."]
    record = decode_record(learned(first).record.canonical)
    answer = record.messages[1]  # type: ignore[union-attr]
    assert answer.reasoning_content == "hm" and answer.tool_calls[0].function.arguments == {"command": "ls"}
    assert (first.first_line, first.line) == (1, 6)
    assert learned(first).origin == msgspec.structs.replace(
        learned(first).origin, session="s", agent="claude-code", version="2.1.1", records=("u4", "u6"),
        responses=("m1", "m2"), model="apollo", first_line=1,
    )  # fmt: skip
    assert shown(second)[-2:] == ["user: Another question", "assistant*: Another answer"]
    assert "Of course." not in "".join(shown(second)), "a branch that was left is not in the conversation"


def test_what_the_user_took_back_is_not_learned() -> None:
    (back,) = (one for one in moments(*CLEAN) if one.taken_back)
    assert back.messages[-1].message["content"] == "Of course."
    assert learn(back, Rules()) == "taken back by the user (branch)"


def test_answers_of_others_and_sidechains_are_context() -> None:
    first = moments(*CLEAN)[0]
    assert learn(first, Rules(models=("other",))) == "another model's answers"
    assert isinstance(learn(first, Rules(models=("*",))), Learned)
    side = moments(*(line.replace(b'"isSidechain": false', b'"isSidechain": true') for line in CLEAN))[0]
    assert learn(side, Rules()) == "a sidechain"
    assert isinstance(learn(side, Rules(sidechains=True)), Learned)


def test_a_moment_has_the_id_that_its_record_would_have_in_the_inbox() -> None:
    """Else the same conversation would be learned twice."""
    record = learned(moments(*CLEAN)[0]).record
    assert parse_line(record.canonical).id == record.id


def test_what_nobody_knows_is_counted_and_no_error() -> None:
    folded = READER.fold(Cursor(), b"".join(CLAUDE_CODE), False, Limits())
    assert folded.counts["unknown: from-the-future"] == 1
    assert folded.counts["dropped: summary"] == 1 and folded.counts["dropped: system: turn_duration"] == 1
    assert [item.line for item in folded.items if isinstance(item, Bad)] == [16, 17, 18, 20]


def line(number: int, role: str, text: str, **more: Any) -> bytes:
    return json.dumps(
        {
            "type": role, "uuid": f"u{number}", "parentUuid": f"u{number - 1}", "sessionId": "s",
            "message": {"role": role, "content": text, "id": f"m{number}", "model": "apollo"}, **more,
        }
    ).encode() + b"\n"  # fmt: skip


def test_a_long_turn_comes_in_pieces_and_context_is_bounded() -> None:
    answers = [line(2 + n, "assistant", f"{n} " + "x" * 10_000) for n in range(100)]
    pieces = moments(line(1, "user", "go on"), *answers)
    assert len(pieces) > 5
    said = [
        m.content
        for one in pieces
        for m in decode_record(learned(one).record.canonical).messages  # type: ignore[union-attr]
        if m.role == "assistant" and m.weight
    ]
    assert said == [f"{n} " + "x" * 10_000 for n in range(100)], "each answer once, in order"
    assert max(len(one.messages) for one in pieces) < 40


def test_context_goes_back_as_far_as_the_rules_allow_and_begins_with_a_prompt() -> None:
    talk = [line(n, ("assistant", "user")[n % 2], f"{n} " + "y" * 100) for n in range(1, 41)]
    last = moments(*talk)[-1]
    short, long = (learned(last, context_tokens=tokens).record for tokens in (100, 1000))
    roles = [m.role for m in decode_record(short.canonical).messages]  # type: ignore[union-attr]
    assert roles[0] == "user" and roles[-1] == "assistant" and len(roles) == 4
    assert len(decode_record(long.canonical).messages) > 30  # type: ignore[union-attr]


def test_a_quiet_conversation_is_taken_and_what_follows_has_it_as_context() -> None:
    log = line(1, "user", "q") + line(2, "assistant", "a")
    folded = READER.fold(Cursor(), log, False, Limits())
    assert folded.items == ()
    settled = READER.settle(folded.cursor)
    (first,) = settled.items
    assert READER.settle(settled.cursor).items == ()
    again = READER.recall(msgspec.structs.replace(settled.cursor, memory=None), [log], Limits())
    for cursor in (settled.cursor, again):
        (second,) = READER.fold(cursor, line(3, "assistant", "b"), True, Limits()).items
        assert isinstance(first, Moment) and isinstance(second, Moment)
        assert [shown(one) for one in (first, second)] == [
            ["user: q", "assistant*: a"],
            ["user: q", "assistant: a", "assistant*: b"],
        ]


@pytest.mark.parametrize("again", ["I look.", "I look. And more"])
def test_a_part_that_is_written_again_counts_once(again: str) -> None:
    """Programs write an answer while it comes, and a call may come before the results of the one before it."""
    parts = [
        line(2, "assistant", "I look.", message={"id": "m", "model": "apollo", "content": "I look."}),
        line(3, "assistant", "", message={"id": "m", "model": "apollo", "content": again}),
    ]
    (one,) = moments(line(1, "user", "q"), *parts)
    assert shown(one) == ["user: q", f"assistant*: {again}"]


def test_an_error_in_a_reader_costs_one_record() -> None:
    def hear(line: bytes) -> Any:
        return [][int(line)]

    (bad,) = SessionReader("x", lambda path, head: True, hear).fold(Cursor(), b"1\n", True, Limits()).items
    assert isinstance(bad, Bad) and "IndexError" in bad.reason and bad.data == b"1\n"


def test_an_answer_that_was_cut_off_is_context() -> None:
    """Its parts are lines of their own, and the last one says so."""
    cut = {"id": "m", "model": "apollo", "content": "half a", "stop_reason": None}
    more = {**cut, "content": "half a sen", "stop_reason": "max_tokens"}
    talk = [line(1, "user", "q"), line(2, "assistant", "", message=cut), line(3, "assistant", "", message=more)]
    (one,) = moments(*talk, line(4, "user", "go on"), line(5, "assistant", "tence."))
    assert shown(one) == ["user: q", "assistant: half a sen", "user: go on", "assistant*: tence."]
