"""Rows of data sets, and what is learned of them."""

import json

import msgspec
import pytest
from support.log_samples import rows
from support.log_samples.rows import SHAPES, TOOL, A, Q, row
from support.readings import read, shown

from apollod.curation.formats.data_set_rows import SHAPES as TABLE
from apollod.curation.formats.jsonl_records import JsonlRecords, read_record
from apollod.curation.formats.reader import Bad, Found, Limits, Reader
from apollod.curation.formats.table import ReaderTable
from apollod.wire.records import decode_record, parse_line

READER = JsonlRecords()
ASKED_WITH_TOOLS = ["user: q", "assistant*: [hm] I look. ls{'of': '.'} ls{}", 'tool: {"files": ["a.py"]}', "tool: none"]
GOLDEN: dict[str, list[list[str] | bytes]] = {
    "alpaca": [
        ["user: Add\n1 2", "assistant*: 3"],
        ["system: Be brief", "user: q", "assistant: a", "user: Say", "assistant*: So"],
    ],
    "sharegpt": [
        ["system: s", "user: q", "assistant*: a"],
        ["system: s", "user: q", "assistant*: ls{'of': '.'}", "tool: a.py", "assistant: a", "assistant*: b"],
        ["user: q", "assistant*: a"],
    ],
    "hermes-trajectories": [
        [*ASKED_WITH_TOOLS, "assistant*: Done."],
        [*ASKED_WITH_TOOLS, "assistant*: Done."],
        ["user: q", "assistant*: plain"],
    ],
    "preference": [
        b'{"completion":"a","prompt":"q"}',
        ["user: q", "assistant*: a"],
        ["user: q", "assistant: a", "user: q", "assistant*: a"],
        b'{"completion":" a","prompt":"Human: q Assistant:"}',
        ["user: q", "assistant*: a"],
        ["system: s", "user: q", "assistant*: a"],
        ["user: q", "assistant*: a"],
        ["user: q", "assistant*: a"],
    ],
    "kto": [b'{"completion":"a","prompt":"q"}', ["user: q", "assistant*: a"], ["user: q", "assistant*: a"]],
    "openai-dpo": [["user: q", "assistant*: a"], ["user: q", "assistant: a", "user: q", "assistant*: b"]],
}
DROPPED = {"kto": {"dropped: rated bad": 2}, "hermes-trajectories": {"dropped: a run that was not completed": 2}}


def told(found: Found) -> list[str] | bytes:
    canonical = found.record.canonical
    return shown(canonical) if canonical.startswith(b'{"messages"') else canonical


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_learned_of_each_shape(shape: str) -> None:
    reading = read(READER, *SHAPES[shape])
    assert [told(found) for found in reading.found] == GOLDEN[shape]
    assert reading.counts == DROPPED.get(shape, {})
    broken = len(SHAPES[shape]) - len(reading.found) - sum(reading.counts.values())
    assert len(reading.bad) == broken > 0
    assert all("\n" not in bad.reason and "Traceback" not in bad.reason for bad in reading.bad)


def test_shapes_may_be_mixed_with_records_in_one_file() -> None:
    lines = [lines[0] for lines in SHAPES.values()]
    reading = read(READER, b'{"text": "t"}\n', *lines, row(messages=[Q, A]), b'{"neither": 1}\n')
    assert [found.line for found in reading.found] == list(range(1, len(lines) + 3))
    assert "no known shape" in reading.bad[0].reason


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_is_named_by_its_first_row_and_read_alike(shape: str) -> None:
    named = ReaderTable().recognise("data.jsonl", SHAPES[shape][0] + b"{}\n")
    assert named.name == shape
    assert read(named, *SHAPES[shape]) == read(READER, *SHAPES[shape])


def test_every_shape_of_the_table_is_tried() -> None:
    assert [shape.name for shape in TABLE] == list(SHAPES)


def test_a_row_has_the_id_of_the_record_it_stands_for() -> None:
    """So that the same text is not learned twice in another shape."""
    (found,) = read(READER, row(instruction="q", output="a")).found
    assert found.record.id == parse_line(row(messages=[Q, A])).id


def test_tools_are_kept_as_in_a_request_and_calls_have_their_ids() -> None:
    (first, *_) = read(READER, *rows.HERMES).found
    record = decode_record(first.record.canonical)
    assert record.tools == [{"type": "function", "function": TOOL}]  # type: ignore[union-attr]
    calls, *results = record.messages[1:4]  # type: ignore[union-attr]
    assert [call.id for call in calls.tool_calls or ()] == [result.tool_call_id for result in results] == ["c1", "c2"]
    (openai, *_) = read(READER, *rows.OPENAI_DPO).found
    assert decode_record(openai.record.canonical).tools == record.tools  # type: ignore[union-attr]


def test_the_tier_that_a_row_asks_for_stays() -> None:
    asked = [found.record.tier for found in read(READER, *rows.PREFERENCE, *rows.KTO).found]
    assert asked.count("direct") == 2


def test_a_label_that_is_no_rating_is_none() -> None:
    reading = read(READER, row(prompt="q", completion="a", label="maths"), row(text="t", label=False))
    assert len(reading.found) == 2


RATED = {
    "messages": {"messages": [Q, A]},
    "conversations": {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    "prompt": {"prompt": "q", "completion": "a"},
    "prompt-of-messages": {"prompt": [Q], "completion": [A]},
    "instruction": {"instruction": "q", "output": "a"},
}


@pytest.mark.parametrize("name", ["label", "kto_tag"])
@pytest.mark.parametrize("shape", RATED)
def test_what_is_rated_bad_is_not_learned_in_whatever_shape_it_is(shape: str, name: str) -> None:
    """As data sets of LLaMA-Factory (`messages` and `label`), TRL and Hugging Face have it."""
    for bad, good in ((False, True), (0, 1), ("False", "True"), ("false", "true"), ("0", "1"), (0.0, 1.0)):
        reading = read(READER, row(**RATED[shape], **{name: bad}), row(**RATED[shape], **{name: good}))
        assert [found.line for found in reading.found] == [2], (bad, good)
        assert reading.counts == {"dropped: rated bad": 1} and not reading.bad
        assert reading.found[0].record.id == read(READER, row(**RATED[shape])).found[0].record.id


def test_rows_with_pictures_videos_or_sounds_are_not_learned() -> None:
    shown = [{"role": "user", "content": "<image>Who is it?"}, A]
    lines = [row(messages=shown, **{name: ["data/1.jpg"]}) for name in ("images", "videos", "audios")]
    reading = read(
        READER, *lines, row(instruction="<image>?", output="a", image="1.jpg"), row(messages=[Q, A], images=[])
    )
    assert reading.counts == {"dropped: about pictures, videos or sounds, which the model is not shown": 4}
    assert [found.line for found in reading.found] == [5] and not reading.bad


def test_who_waits_for_a_line_is_told_that_it_is_no_example() -> None:
    (row,) = [one for one in rows.HERMES if read(READER, one).counts][:1]
    (item,) = read_record(1, row, Limits())
    assert isinstance(item, Bad) and "not completed" in item.reason


def test_nulls_of_a_table_are_no_keys() -> None:
    """Rows of several shapes in one table have each other's columns."""
    value = {**json.loads(rows.SHAREGPT[0]), "chosen": None, "rejected": None, "instruction": None, "output": None}
    assert [told(found) for found in read(READER, msgspec.json.encode(value)).found] == [GOLDEN["sharegpt"][0]]


def test_rows_in_one_array_are_read_alike() -> None:
    lines = [line for shape in SHAPES.values() for line in shape]
    log = b"[\n" + b",\n".join(line.rstrip(b"\n") for line in lines) + b"\n]\n"
    reader = ReaderTable().recognise("alpaca_data.json", log[:5000])
    assert reader.name == "json-rows"
    reading, as_lines = read(reader, log), read(READER, *lines)
    assert [told(found) for found in reading.found] == [told(found) for found in as_lines.found]
    assert reading.counts == as_lines.counts and len(reading.bad) == len(as_lines.bad)
    assert ReaderTable().recognise("any.json", b'[{"text": "t"}]').name == "json-rows"
    assert ReaderTable().recognise("any.json", b'[{"neither": 1}]').name == "records"


@pytest.mark.parametrize("reader", [READER, ReaderTable.of("json-rows").recognise("", b"")])
def test_secrets_are_out_before_a_row_is_read(reader: Reader) -> None:
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    log = row(instruction="q", output=f"the key is {key}")
    reading = read(reader, b"[" + log + b"]" if reader.name == "json-rows" else log)
    (found,) = reading.found
    assert key.encode() not in found.record.canonical
    assert [name for name in reading.counts if name.startswith("redacted: ")]
