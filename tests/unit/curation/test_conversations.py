"""From the log of a session to what is learned of it."""

import json
from typing import Any

import msgspec
import pytest
from support.reader_samples import CLAUDE_CODE
from support.readings import every, learned

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


def shown(example: Learned) -> list[str]:
    """Role and content of each message, with a star at what is learned."""
    messages = decode_record(example.record.canonical).messages  # type: ignore[union-attr]
    return [f"{m.role}{'*' * m.weight if m.role == 'assistant' else ''}: {m.content}" for m in messages]


def test_each_answer_is_an_example_with_its_calls_and_what_came_before() -> None:
    first, second = (one for one in moments(*CLEAN) if not one.taken_back)
    call, done = every(first)
    assert shown(call) == ["user: Fix it", "assistant*: I look."]
    assert shown(done) == ["user: Fix it", "assistant: I look.", "tool: a.py", "assistant*: Done."]
    answer = decode_record(call.record.canonical).messages[1]  # type: ignore[union-attr]
    assert answer.reasoning_content == "hm" and answer.tool_calls[0].function.arguments == {"command": "ls"}
    assert (first.first_line, first.line, call.line, done.line) == (1, 6, 4, 6)
    assert call.origin == msgspec.structs.replace(
        call.origin, session="s", agent="claude-code", version="2.1.1", records=("u4",), responses=("m1",),
        model="apollo", first_line=2, left_out=0, shortened=0,
    )  # fmt: skip
    assert (done.origin.records, done.origin.responses) == (("u6",), ("m2",))
    assert shown(learned(second))[-2:] == ["user: Another question", "assistant*: Another answer"]
    assert "Of course." not in "".join(shown(learned(second))), "a branch that was left is not in the conversation"


def test_what_the_user_took_back_is_not_learned() -> None:
    (back,) = (one for one in moments(*CLEAN) if one.taken_back)
    assert back.messages[-1].message["content"] == "Of course."
    assert learn(back, Rules()).unlearned == {"taken back by the user (branch)": 1}


def test_answers_of_others_and_sidechains_are_context() -> None:
    first = moments(*CLEAN)[0]
    assert learn(first, Rules(models=("other",))).unlearned == {"another model's answers": 2}
    assert len(learn(first, Rules(models=("*",))).learned) == 2
    side = moments(*(line.replace(b'"isSidechain": false', b'"isSidechain": true, "agentId": "a1"') for line in CLEAN))[
        0
    ]
    assert learn(side, Rules()).unlearned == {"a sidechain": 2}
    assert len(learn(side, Rules(sidechains=True)).learned) == 2


def test_a_moment_has_the_id_that_its_record_would_have_in_the_inbox() -> None:
    """Else the same conversation would be learned twice."""
    for one in every(moments(*CLEAN)[0]):
        assert parse_line(one.record.canonical).id == one.record.id


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
    made = [shown(one) for piece in pieces for one in every(piece, context_tokens=16384)]
    assert [one[-1] for one in made] == [f"assistant*: {n} " + "x" * 10_000 for n in range(100)], "each once, in order"
    assert {one[0] for one in made} == {"user: go on"}, "however long ago it was asked"
    assert max(len(one.messages) for one in pieces) < 40
    assert max(sum(map(len, one)) for one in made) < 4 * 16384 + 10_100


def test_context_goes_back_as_far_as_the_rules_allow_and_begins_with_a_prompt() -> None:
    talk = [line(n, ("assistant", "user")[n % 2], f"{n} " + "y" * 100) for n in range(1, 41)]
    last = moments(*talk)[-1]
    short, long = (learned(last, context_tokens=tokens) for tokens in (100, 1000))
    assert [one.partition(" ")[0] for one in shown(short)] == ["user:", "assistant:", "user:", "assistant*:"]
    assert (short.origin.left_out, len(shown(long))) == (36, 38)


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
        assert [shown(learned(one)) for one in (first, second)] == [
            ["user: q", "assistant*: a"],
            ["user: q", "assistant: a", "assistant*: b"],
        ]


def test_a_part_that_comes_after_its_answer_was_taken_is_learned_too() -> None:
    """A person may be asked for permission, or a long call written, between two records of one answer."""

    def part(number: int, *content: Any) -> bytes:
        return line(number, "assistant", "", message={"id": "m", "model": "apollo", "content": list(content)})

    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    head = [line(1, "user", "q"), part(2, {"type": "text", "text": "I look"}), part(3, {"type": "text", "text": "."})]
    settled = READER.settle(READER.fold(Cursor(), b"".join(head), False, Limits()).cursor)
    (first,) = settled.items
    assert isinstance(first, Moment) and shown(learned(first)) == ["user: q", "assistant*: I look."]
    tail = [part(4, {"type": "text", "text": "I look. There"}), part(5, call)]
    forgot = msgspec.structs.replace(settled.cursor, memory=None)
    again = READER.recall(forgot, [b"".join(head)], Limits())
    late = READER.recall(forgot, [b"".join([*head, tail[0]])], Limits())  # it ended before that was taken
    for cursor, rest in ((settled.cursor, tail), (again, tail), (late, tail[1:])):
        (second,) = READER.fold(cursor, b"".join(rest), True, Limits()).items
        assert isinstance(second, Moment)
        added = decode_record(learned(second).record.canonical).messages[-1]  # type: ignore[union-attr]
        assert shown(learned(second)) == ["user: q", "assistant: I look.", f"assistant*: {added.content}"]
        assert added.content.strip() == "There" and added.tool_calls[0].function.name == "Bash"


@pytest.mark.parametrize("again", ["I look.", "I look. And more"])
def test_a_part_that_is_written_again_counts_once(again: str) -> None:
    """Programs write an answer while it comes, and a call may come before the results of the one before it."""
    parts = [
        line(2, "assistant", "I look.", message={"id": "m", "model": "apollo", "content": "I look."}),
        line(3, "assistant", "", message={"id": "m", "model": "apollo", "content": again}),
    ]
    (one,) = moments(line(1, "user", "q"), *parts)
    assert shown(learned(one)) == ["user: q", f"assistant*: {again}"]


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
    assert shown(learned(one)) == ["user: q", "assistant: half a sen", "user: go on", "assistant*: tence."]
