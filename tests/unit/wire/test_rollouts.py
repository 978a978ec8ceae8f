"""The file of a group of rollouts: what it holds, and what it refuses."""

import math
import zlib
from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.errors import RecordRefused
from apollod.wire.comparisons import GroupForm, GroupRecord, compared_json, decode_learned
from apollod.wire.records import Message, decode_record
from apollod.wire.rollouts import Group, Rollout, Terms, advantages, check, digest_of, read_group, rollout, write_group
from apollod.wire.teacher import GivenBlob
from apollod.wire.teacher import digest_of as digest_of_file

GOOD = rollout([5, 6, 7, 8], [False, False, True, True], [-0.5, -1.25], 1.0, 0.7, (3, 4))


def words(*ids: int) -> bytes:
    return array("I", ids).tobytes()


def group(first: Rollout = GOOD, *others: Rollout) -> Group:
    return Group((first, *(others or (msgspec.structs.replace(GOOD, score=0.0),))))


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    sampled = draw(st.lists(st.booleans(), min_size=1, max_size=20).filter(any))
    tokens = draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(sampled) + 1, max_size=len(sampled) + 1))
    logprobs = st.lists(st.floats(-1000, 0, width=32), min_size=sum(sampled), max_size=sum(sampled))
    reference = draw(logprobs) if draw(st.booleans()) else None
    score, temperature = draw(st.floats(-1e9, 1e9)), draw(st.floats(0.01, 100))
    return rollout(tokens, [False, *sampled], draw(logprobs), score, temperature, (1, 2), reference)


@given(st.lists(rollouts(), min_size=2, max_size=5), st.randoms())
def test_a_group_is_read_as_it_was_written_and_known_in_any_order(each, rng):
    one = Group(tuple(each))
    assert read_group(write_group(one)) == one
    assert read_group(write_group(one)).rollouts[0].tokens == each[0].tokens
    rng.shuffle(each)
    assert digest_of(Group(tuple(each))) == digest_of(one)
    assert digest_of(Group((*each, each[0]))) != digest_of(one)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"ids": b"12345"}, "no whole numbers"),
        ({"mask": b"\0\1\1"}, "4 tokens and a mask of 3"),
        ({"mask": b"\0\0\0\0", "logprobs": b""}, "selects no token"),
        ({"mask": b"\1\0\0\1"}, "selects the first token"),
        ({"score": math.nan}, "the score of rollout 1 of 2 is nan"),
        ({"score": math.inf}, "the score of rollout 1 of 2 is inf"),
        ({"temperature": 0.0}, "temperature"),
        ({"logprobs": b""}, "0 log-probabilities for 2 sampled tokens"),
        ({"reference": b"\0" * 4}, "1 log-probabilities of the reference for 2"),
        ({"likeliest": words(1, 2, 3, 4), "told": b"\0" * 8}, "4 likeliest tokens of a teacher with 2"),
        ({"likeliest": words(1, 2, 3), "told": b"\0" * 12}, "3 likeliest tokens of a teacher with 3 .* for 2"),
        ({"likeliest": words(1, 2, 3, 3), "told": b"\0" * 16}, "names a token twice in one place"),
        ({"likeliest": words(1, 2), "told": array("f", [-1.0, math.nan]).tobytes()}, "nan in place 2"),
        ({"coefficients": b"\0" * 4}, "no finite coefficient for each of its 2"),
        ({"coefficients": array("f", [1.0, math.inf]).tobytes()}, "no finite coefficient"),
    ],
)
def test_what_no_step_can_learn_is_refused_with_its_place(bad, said):
    wrong = msgspec.structs.replace(GOOD, **bad)
    with pytest.raises(RecordRefused, match=said):
        write_group(group(wrong))
    with pytest.raises(RecordRefused, match=said):
        read_group(zlib.compress(msgspec.msgpack.encode(group(wrong))))


@pytest.mark.parametrize("value", [-9999.0, 1.0, math.nan, math.inf, -math.inf])
def test_what_servers_write_for_a_missing_log_probability_is_refused(value):
    """-9999: vLLM; 1: the padding of Atropos."""
    with pytest.raises(RecordRefused, match=r"for sampled token 2 is none") as refused:
        check(group(rollout([5, 6, 7, 8], [False, False, True, True], [-0.5, value], 1.0)))
    assert "ask for them with each token" in refused.value.hint


def test_a_group_of_one_is_refused_unless_its_loss_needs_no_other():
    with pytest.raises(RecordRefused, match="has 1 rollouts"):
        write_group(Group((GOOD,)))
    for alone in ({"coefficients": b"\0" * 8}, {"likeliest": words(1, 2, 3, 4), "told": b"\0" * 16}):
        one = Group((msgspec.structs.replace(GOOD, **alone),))
        assert read_group(write_group(one)) == one
    with pytest.raises(RecordRefused, match="has 0 rollouts"):
        write_group(Group(()))


@pytest.mark.parametrize("blob", [b"", b"nothing", zlib.compress(b"[]"), write_group(group())[:-3]])
def test_other_bytes_are_refused(blob):
    with pytest.raises(RecordRefused):
        read_group(blob)


def test_a_file_that_unpacks_to_more_than_memory_is_refused(monkeypatch):
    monkeypatch.setattr("apollod.wire.rollouts.BYTES_MAX", 1 << 20)
    with pytest.raises(RecordRefused, match="larger than 1 MiB"):
        read_group(zlib.compress(bytes(2 << 20)))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_advantages_have_mean_0_and_spread_1_or_there_are_none(scores):
    found = advantages(scores)
    if found is None:
        assert max(scores) - min(scores) <= 1e-5 * max(1.0, max(map(abs, scores))) * len(scores)
        return
    assert math.fsum(found) / len(found) == pytest.approx(0.0, abs=1e-6)
    assert math.fsum(one * one for one in found) / len(found) == pytest.approx(1.0, rel=1e-6)
    by_score = [one for _, one in sorted(zip(scores, found, strict=True))]
    assert by_score == sorted(by_score), "a better score is no worse"


def test_a_record_of_a_group_is_for_the_trainer_and_not_for_readers_of_text():
    blob = write_group(group())
    asked = [Message("user", "1 + 1 = ")]
    form = GroupForm("sums", asked, ["2", "3"], "grpo", digest_of_file(blob), [1.0, 0.0], Terms(high=1.28))
    record = decode_learned(compared_json(GroupRecord(form)))
    assert record == GroupRecord(form)
    with pytest.raises(RecordRefused, match="no canonical record"):
        decode_record(compared_json(GroupRecord(form)))
    with pytest.raises(RecordRefused, match="it was not given"):
        record.read()
    assert GroupRecord(form, GivenBlob(digest_of_file(blob), blob)).read() == group()
    with pytest.raises(RecordRefused, match="was changed"):
        GroupRecord(form, GivenBlob(digest_of_file(blob), write_group(group(GOOD, GOOD)))).read()
    with pytest.raises(RecordRefused, match="no canonical record"):
        decode_learned(b'{"group": 3}')
