"""From sessions of pi and OpenClaw to what is learned of them."""

import pytest
from support.log_samples.pi import BROKEN, DRIFT, HEADER, SESSION, VERSION_1, message, text
from support.readings import every, examples, kinds, read

from apollod.curation.formats.pi import COMPACTED, LEFT, READER
from apollod.curation.formats.table import ReaderTable


def test_a_session_becomes_examples() -> None:
    reading = read(READER, *SESSION)
    start = ["user: Fix it", "assistant: [hm] I look. bash{'command': 'ls'}", "tool: a.py", "assistant: Done."]
    left = f"user: {LEFT}It was tried\n</summary>"
    compacted = f"user: {COMPACTED}Fixed and tested\n</summary>"
    assert examples(reading) == [
        [one.replace("assistant:", "assistant*:") for one in start],
        "taken back by the user (branch)",
        [*start, left, "user: Now the tests", "assistant*: They pass."],
        [compacted, "user: Now the tests", "assistant: They pass.", "user: Commit", "assistant*: Committed."],
        "taken back by the user (branch)",
        ["user: Begin anew", "assistant*: Yes."],
    ]
    assert reading.bad == []
    push = read(READER, *SESSION[:-2])
    again = f"user: {COMPACTED}All is done\n</summary>"
    context = [again, "user: Commit", "assistant: Committed.", "user: It is noon"]
    assert examples(push)[-1] == [*context, "user: Push", "assistant*: Pushed."]


def test_what_gives_nothing_is_counted() -> None:
    assert read(READER, *SESSION).counts == {
        "dropped: model_change": 1,
        "dropped: thinking_level_change": 1,
        "dropped: a shell command that the model was not shown": 1,
        "dropped: an answer that ended with aborted": 1,
        "dropped: label": 1,
    }


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    first, back, *_ = read(READER, *SESSION).moments
    origin, last = (one.origin for one in every(first))
    assert (origin.session, origin.agent, origin.version) == ("s1", "pi", "session format 3")
    assert (origin.model, origin.records, origin.responses) == ("apollo", ("e4",), ("r1",))
    assert last.records == ("e6",)
    assert kinds(first) == ["correction", "tool-error"], "the next prompt says: No, otherwise"
    shell = back.messages[-3].message["content"]
    assert shell == "Ran `make`\n```\nok\n```\n\nCommand exited with code 2"


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, *DRIFT)
    assert examples(reading) == [["user: hi", "assistant*: hello"]]
    assert reading.counts == {
        "unknown: from-the-future": 1,
        "unknown: message: seer": 1,
        "dropped: a prompt without text": 1,
    }


def test_a_list_of_version_1_is_read() -> None:
    reading = read(READER, *VERSION_1)
    assert examples(reading, models=("*",)) == [["user: q", "user: by the way", "assistant*: a"]]


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 5, 7, 8]
    assert all("\n" not in bad.reason for bad in reading.bad)


def test_a_branch_that_only_its_answer_differs_in_is_one() -> None:
    talk = [message(1, 0, "user", "q"), message(2, 1, "assistant", text("a")), message(3, 1, "assistant", text("b"))]
    assert examples(read(READER, HEADER, *talk)) == ["taken back by the user (branch)", ["user: q", "assistant*: b"]]


def test_it_is_recognised_by_its_first_line() -> None:
    for first in (SESSION[0], DRIFT[0], VERSION_1[0]):
        assert ReaderTable().recognise("any.jsonl", first).name == "pi"
    assert ReaderTable().recognise("a.jsonl", b'{"type": "message"}\n').name == "records"


@pytest.mark.parametrize("model", ["gateway-injected", "delivery-mirror"])
def test_what_openclaw_itself_wrote_is_not_learned(model: str) -> None:
    asked, told = message(1, 0, "user", "q"), message(2, 1, "assistant", text("run ended"), model=model)
    reading = read(READER, HEADER, asked, told, message(3, 2, "assistant", text("a")))
    assert examples(reading, models=("*",)) == [["user: q", "assistant*: a"]]
    assert reading.counts == {"dropped: an answer that the program wrote": 1}
