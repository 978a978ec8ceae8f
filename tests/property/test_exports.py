"""What is exported is read back, by the readers that read it as a source, to the same example."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some
from support.effort import draws

from apollod.core.facts.intake.events import Origin
from apollod.curation.conversation import Moment
from apollod.curation.exports import FORMS, Exported
from apollod.curation.formats.reader import Cursor, Found, Limits
from apollod.curation.formats.table import ReaderTable
from apollod.curation.moments import Rules, gathered
from apollod.curation.stripping import Stripping
from apollod.errors import RecordRefused
from apollod.wire.records import Record, parse_line

EVERYTHING = Rules(models=("*",), context_tokens=1 << 30, stripping=Stripping("none"))
words = some.text(max_size=12).filter(lambda text: text.isprintable() or "\n" in text) | some.sampled_from(
    ["", " ", "\n", "</think>", "a\n\nb", '"', "é🦦"]
)
said = words.filter(str.strip)
names = some.sampled_from(["find", "read_file", "x"])
values = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53), 2**53) | some.floats(-1e9, 1e9) | words,
    lambda inner: some.lists(inner, max_size=2) | some.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
calls = some.fixed_dictionaries(
    {"function": some.fixed_dictionaries({"name": names, "arguments": some.dictionaries(names, values, max_size=2)})},
    optional={"id": some.sampled_from(["c1", "c2"])},
)
asked = some.fixed_dictionaries(
    {"role": some.sampled_from(["user", "user", "user", "system", "developer"]), "content": words},
    optional={"name": names},
)
result = some.fixed_dictionaries(
    {"role": some.just("tool"), "content": words}, optional={"tool_call_id": some.sampled_from(["c1", "c2"])}
)
answer = some.fixed_dictionaries(
    {"role": some.just("assistant"), "content": said},
    optional={
        "reasoning_content": said,
        "tool_calls": some.lists(calls, min_size=1, max_size=2),
        "weight": some.sampled_from([0, 1]),
    },
)
conversations = some.fixed_dictionaries(
    {"messages": some.lists(asked | result | answer, min_size=1, max_size=6)},
    optional={"tools": some.lists(some.dictionaries(names, values, min_size=1, max_size=2), min_size=1, max_size=2)},
)
decided = some.builds(
    lambda row, last: {**row, "messages": [*row["messages"][:5], {**last, "weight": 1}]}, conversations, answer
)
"""they end with what is learned, as every turn of a log does"""
rows = (
    conversations
    | some.fixed_dictionaries({"prompt": words, "completion": said})
    | some.fixed_dictionaries({"text": said})
)


def record_of(row: dict[str, Any]) -> Record:
    try:
        return parse_line(json.dumps(row).encode())
    except RecordRefused:
        assume(False)
        raise


def exported(record: Record) -> Exported:
    return Exported(record.id, json.loads(record.canonical), Origin(session="s", agent="a"), {})


def read(documents: list[dict[str, Any]]) -> list[str]:
    """Ids of what a file with these lines would teach."""
    data = b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in documents)
    reader, at, ids = ReaderTable.of("auto").recognise("/export.jsonl", data), Cursor(), list[str]()
    while True:
        folded = reader.fold(at, data[at.offset :], True, Limits())
        for item in folded.items:
            assert isinstance(item, Moment | Found), item
            found = gathered(item, EVERYTHING)
            assert found.learned and not found.unlearned, found
            ids += [learned.record.id for learned in found.learned]
        if folded.cursor == at and not folded.items:
            return ids
        at = folded.cursor


def by_answer(record: Record) -> list[Record]:
    """An example of its own for each answer, as in a log."""
    form = json.loads(record.canonical)
    messages, learned = form["messages"], []
    context = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in messages]
    for n, message in enumerate(messages):
        if message["role"] == "assistant" and message.get("weight") != 0:
            learned.append(record_of({**form, "messages": [*context[:n], message]}))
    return learned


@pytest.mark.parametrize("form", ["trl", "openai"])
@draws(60, 150)
@given(rows)
def test_rows_are_read_back_to_the_same_example(form: str, row: dict[str, Any]) -> None:
    record = record_of(row)
    value = FORMS[form](exported(record)).value
    assert value is not None and parse_line(json.dumps(value).encode()).id == record.id


@draws(60, 200)
@given(some.lists(decided, min_size=1, max_size=2))
def test_trajectories_are_read_back_to_the_same_examples(rows: list[dict[str, Any]]) -> None:
    records = [record_of(row) for row in rows]
    documents = [FORMS["atif"](exported(record)) for record in records]
    assert not any(document.note for document in documents)
    ids = [one.id for record in records for one in by_answer(record)]
    assert read([document.value for document in documents if document.value]) == ids


def test_what_a_format_cannot_say_is_told() -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    context = {"role": "assistant", "content": "c", "weight": 0}
    for row, form, note in (
        ({"text": "a"}, "atif", "left out"),
        ({"text": "a"}, "openai", "does not take"),
        ({"messages": [*chat, {"role": "user", "content": "d"}]}, "atif", "dropped"),
        ({"messages": [*chat, context, *chat]}, "trl", "would learn them"),
        ({"messages": chat}, "trl", ""),
        ({"messages": [*chat[:1], context, *chat]}, "trl", ""),
    ):
        made = FORMS[form](exported(record_of(row)))
        assert note in made.note and bool(note) == bool(made.note)
        assert (made.value is None) == (note == "left out")


def test_a_trajectory_as_other_programs_read_it() -> None:
    call = {"function": {"name": "find", "arguments": {"town": "Elmford"}}, "id": "c1"}
    record = record_of(
        {
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "Where?"},
                {"role": "assistant", "content": "Sure?", "weight": 0},
                {"role": "user", "content": "Yes."},
                {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [call]},
                {"role": "tool", "content": "far", "tool_call_id": "c1"},
                {"role": "assistant", "content": "Far."},
            ],
            "tools": [{"name": "find"}],
        }
    )
    made = FORMS["atif"](Exported(record.id, json.loads(record.canonical), Origin("s", "codex", "1", model="m"), {}))
    value = made.value
    assert value is not None
    assert value["agent"] == {
        "name": "codex", "version": "1", "model_name": "m", "tool_definitions": [{"name": "find"}]
    }  # fmt: skip
    assert (value["schema_version"], value["session_id"], value["trajectory_id"]) == ("ATIF-v1.7", "s", record.id)
    steps = value["steps"]
    assert [(one["step_id"], one["source"], one["message"]) for one in steps] == [
        (1, "system", "Be kind."), (2, "user", "Where?"), (3, "agent", "Sure?"), (4, "user", "Yes."), (5, "agent", ""),
        (6, "agent", "Far."),
    ]  # fmt: skip
    assert [one.get("is_copied_context") for one in steps] == [None, None, True, None, None, None]
    assert steps[4]["tool_calls"] == [
        {"tool_call_id": "c1", "function_name": "find", "arguments": {"town": "Elmford"}}
    ]  # fmt: skip
    assert steps[4]["observation"] == {"results": [{"source_call_id": "c1", "content": "far"}]}
    assert [one.get("extra") for one in steps] == [None, None, None, {"apollod": {"within": True}}, None, None]
    assert read([value]) == [one.id for one in by_answer(record)] and len(by_answer(record)) == 2
