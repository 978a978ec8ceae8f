"""Rows of foreign databases are anything: nothing in them stops the reading, and reading always comes to an end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import draws

from apollod.curation.formats.database_reader import DatabaseReader
from apollod.curation.formats.session_rows import RawSession, SessionCursor, read_session, written_anew
from apollod.curation.formats.table import DATABASES

COLUMNS = (
    "id", "role", "content", "tool_call_id", "tool_calls", "reasoning", "effect_disposition", "timestamp", "observed",
    "finish_reason", "active", "compacted", "event_json", "data", "part", "part_data", "meta", "snapshot", "type",
    "source", "model", "system_prompt", "parent_session_id", "started_at", "revert", "session_key", "size",
    "content_json", "value", "status", "metadata_json", "message_id", "model_config_json", "session_type",
)  # fmt: skip
TEXTS = (
    b"", b"user", b"assistant", b"tool", b"\xff", b"\x00json:[", b'\x00json:[{"type": "text", "text": "x"}]', b"{}",
    b"null", b"[" * 5000, b'{"role": "user"}', b'{"role": "assistant", "error": 1}',
    b'{"role": "assistant", "finish": "x"}', b"[]",
    b'{"type": "text", "text": "x"}', b'{"type": "tool", "state": {"output": {"a": 1}}}', b'{"messageID": "1"}',
    b'{"type": "message", "id": "a", "message": {"role": "assistant", "content": "so", "model": "m"}}',
    b'[{"type": "text", "text": "x"}]', b'[{"type": "toolResponse", "toolResult": {"value": 7}}, 7]',
    b'[{"type": "toolRequest", "toolCall": {"value": {"name": "f"}}}]', b'{"model_name": 7}',
    b'{"type": 2, "text": "x", "toolFormerData": {"name": "f", "rawArgs": "["}}', b'{"type": 1, "text": "x"}',
    b'{"rating": NaN}', b"[CONTEXT SUMMARY]: x", b'[{"function": {"name": "f", "arguments": "{}"}}]', b"\\ud800",
)  # fmt: skip
values = st.one_of(
    st.none(), st.integers(-5, 5), st.floats(), st.sampled_from(TEXTS), st.binary(max_size=20), st.just(1 << 60)
)
rows = st.dictionaries(st.sampled_from(COLUMNS), values, max_size=12)
keys = st.one_of(st.none(), st.integers(0, 9), st.sampled_from(["0", "5", "9"]))


@pytest.mark.parametrize("reader", DATABASES, ids=lambda reader: reader.name)
@draws(20, 40)
@given(
    facts=rows,
    said=st.lists(st.lists(rows, min_size=1, max_size=2), max_size=8),
    cursor=st.builds(SessionCursor, given=keys, seen=keys, back=st.integers(0, 3)),
    words=st.booleans(),
    cut=st.booleans(),
)
def test_nothing_in_rows_stops_the_reading(
    reader: DatabaseReader,
    facts: dict[str, Any],
    said: list[list[dict[str, Any]]],
    cursor: SessionCursor,
    words: bool,
    cut: bool,
) -> None:
    names: list[Any] = [str(n) if words else n for n in range(len(said))]
    records = [(key, [{"key": key, **row} for row in of]) for key, of in zip(names, said, strict=True)]
    raw = RawSession(facts, records, 1, cut)
    if written_anew(reader, raw, cursor):
        cursor = SessionCursor()
    for _ in range(2 * len(said) + 3):
        read = read_session(reader, raw, cursor, 1 << 20, 1, settle=True)
        if read.cursor == cursor:
            break
        cursor = read.cursor
        assert read.line <= len(said)
    assert read.cursor == cursor and not read.items and not read.counts, "it is at its end, and says nothing twice"
