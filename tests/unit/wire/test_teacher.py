"""A teacher as a file: its bytes, and what is no such file."""

import math
from array import array
from collections.abc import Callable

import pytest
from hypothesis import given as cases
from hypothesis import strategies as st
from support.teachers import given, made_up

from apollod.errors import RecordRefused
from apollod.wire.comparisons import with_file
from apollod.wire.records import CompletionRecord, MessagesRecord, decode_record, parse_line
from apollod.wire.teacher import GivenTeacher, Teacher, digest_of, read_teacher, write_teacher

SMALL = Teacher(array("I", [5, 9]), array("I", [5, 1, 9, 2]), array("f", [-0.5, -1.5, -0.25, -2.0]), 2, 12)


def test_the_file_is_as_it_is_written_down_for_ever() -> None:
    blob = write_teacher(SMALL)
    assert blob.hex() == (
        "61706f5445413031" "02000000" "02000000" "0c00000000000000" "05000000" "09000000"
        "05000000" "01000000" "09000000" "02000000" "000000bf" "0000c0bf" "000080be" "000000c0"
    )  # fmt: skip
    assert digest_of(blob) == "907c004e21154191f648cb9001822450"  # as `b2sum -l 128` has it
    assert read_teacher(blob) == SMALL


@cases(st.integers(1, 20), st.integers(1, 20), st.integers(0, 1000))
def test_what_is_written_is_read_again(count: int, k: int, seed: int) -> None:
    teacher = made_up([(seed + n) % 100 for n in range(count)], 100, k, seed)
    blob = write_teacher(teacher)
    assert read_teacher(blob) == teacher and write_teacher(read_teacher(blob)) == blob


def put(values: "array[int] | array[float]", place: int, value: float) -> "array[int] | array[float]":
    changed = array(values.typecode, values)
    changed[place] = value  # type: ignore[call-overload]
    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t._replace(answer=array("I")), "of 0 tokens"),
        (lambda t: t._replace(k=0), "0 likeliest"),
        (lambda t: t._replace(ids=t.ids[:-1]), "3 ids and 4 log-probabilities are not 2 times 2"),
        (lambda t: t._replace(logprobs=t.logprobs[:-1]), "are not 2 times 2"),
        (lambda t: t._replace(ids=put(t.ids, 3, 9)), "a token comes twice in place 2"),
        (lambda t: t._replace(logprobs=put(t.logprobs, 0, math.nan)), "place 1 of the answer sum to"),
        (lambda t: t._replace(logprobs=put(t.logprobs, 0, math.inf)), "place 1 of the answer sum to inf"),
        (lambda t: t._replace(logprobs=put(t.logprobs, 0, -0.01)), "place 1 of the answer sum to 1.21"),
    ],
)  # fmt: skip
def test_what_is_no_distribution_is_refused(change: Callable[[Teacher], Teacher], said: str) -> None:
    with pytest.raises(RecordRefused, match=said):
        write_teacher(change(SMALL))


def test_probabilities_that_sum_to_a_little_more_than_one_are_those_of_float32() -> None:
    """As are tokens that cannot come, for which vLLM says -9999."""
    write_teacher(SMALL._replace(logprobs=array("f", [0.0002, -9999.0, 0.0, -math.inf])))


@pytest.mark.parametrize("blob", [b"", b"apoTEA01", write_teacher(SMALL)[:-1], b"x" + write_teacher(SMALL)[1:]])
def test_other_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(RecordRefused, match="this is no teacher"):
        read_teacher(blob)


def test_a_file_that_is_missing_or_another_one_is_named() -> None:
    whole = given(SMALL)
    assert whole.read() == SMALL
    changed = bytearray(whole.blob)
    changed[-1] ^= 1
    with pytest.raises(RecordRefused, match=f"its teacher {whole.digest} was changed") as caught:
        GivenTeacher(whole.digest, bytes(changed)).read()
    assert f"put blobs/{whole.digest} back" in caught.value.hint
    with pytest.raises(RecordRefused, match=rf"its teacher {whole.digest} is not there \(no such file"):
        GivenTeacher(whole.digest, why="no such file").read()
    with pytest.raises(RecordRefused, match=r"is not there \(it is empty"):
        GivenTeacher(whole.digest).read()


@pytest.mark.parametrize(
    "line",
    [
        b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
        b'{"prompt": "a", "completion": "b"}',
    ],
)
def test_a_record_takes_its_teacher_with_it(line: bytes) -> None:
    canonical = parse_line(line).canonical
    typed = decode_record(with_file(canonical, given(SMALL)))
    assert isinstance(typed, MessagesRecord | CompletionRecord)
    assert typed.teacher is not None and typed.teacher.read() == SMALL
    bare = decode_record(canonical)
    assert isinstance(bare, MessagesRecord | CompletionRecord) and bare.teacher is None
