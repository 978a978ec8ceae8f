"""The laws of `curation/formats/reader.py`, checked for every format of the table and for one that carries state."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import draws
from support.reader_samples import SAMPLES
from support.toy_format import ToyConversations

from apollod.curation.conversation import Moment, Remark
from apollod.curation.formats.jsonl_records import ROWS, JsonlRecords
from apollod.curation.formats.reader import Bad, Cursor, Found, Item, Limits, Reader
from apollod.curation.formats.table import READERS, ReaderTable
from apollod.errors import SourceRefused

BEGIN = Cursor()
LAWFUL = [*(reader for reader in READERS if reader not in ROWS), ToyConversations()]
"""Readers of rows are the reader of records under other names."""
each_reader = pytest.mark.parametrize("reader", LAWFUL, ids=lambda reader: reader.name)
laws = draws(15, 40)
"""Examples for each law and each reader: most of what they run is the same code, so that the number adds up."""
limits = st.builds(
    Limits, record_bytes=st.sampled_from([1, 7, 60, 200, 1 << 20]), items=st.sampled_from([1, 2, 5, 256])
)


def log_of(data: st.DataObject, reader: Reader) -> bytes:
    pieces = st.one_of(st.sampled_from(SAMPLES[reader.name]), st.binary(max_size=40))
    return b"".join(data.draw(st.lists(pieces, max_size=12)))


class Reading:
    """A caller of a reader, which checks every answer."""

    def __init__(self, reader: Reader, limits: Limits, cursor: Cursor = BEGIN) -> None:
        self.reader, self.limits, self.cursor = reader, limits, cursor
        self.safe = cursor
        self.results: list[tuple[object, ...]] = []
        self.recorded = 0
        self._open: Bad | None = None

    def read(self, log: bytes, end: bool) -> None:
        """Everything that can be read of a log that is `log` now; `end`: it will not grow."""
        while True:
            before, data = self.cursor, log[self.cursor.offset :]
            folded = self.reader.fold(before, data, end, self.limits)
            after, items = folded.cursor, folded.items
            assert before.offset <= after.offset <= before.offset + len(data)
            assert after.line >= before.line and (after.inside or after.line > 0 or after.offset == 0)
            assert after != before or items or len(data) <= self.limits.record_bytes, "nothing was used of too much"
            assert (
                not after.inside or after == before or (len(items) == 1 and isinstance(items[0], Bad) and items[0].more)
            )
            assert after.inside or not any(isinstance(item, Bad) and item.more for item in items)
            msgspec.json.decode(after.state or "{}")
            self.cursor = after
            for item in items:
                self._take(item)
            if not after.inside:
                assert self._open is None
                self.safe, self.recorded = after, len(self.results)
            if after == before and not items:
                assert not end or (after.offset == len(log) and not after.inside), "an end that leaves something"
                return

    def _take(self, item: Item) -> None:
        if isinstance(item, Found | Moment | Remark):
            assert self._open is None
            self.results.append(("found", item.line, item))
            return
        assert item.reason
        if self._open is not None:
            assert item.line == self._open.line
            item = item._replace(data=self._open.data + item.data, reason=self._open.reason)
        self._open = item if item.more else None
        if not item.more:
            self.results.append(("bad", item.line, item.reason, item.data))

    def restart(self, log: bytes) -> None:
        """Go on from what was recorded, with nothing of the reader's memory."""
        self.cursor, self._open = recalled(self.reader, self.safe, log, self.limits), None
        del self.results[self.recorded :]


def recalled(reader: Reader, cursor: Cursor, log: bytes, limits: Limits) -> Cursor:
    """A cursor as it is when it comes back from the journal."""
    recorded = msgspec.structs.replace(cursor, memory=None)
    before = log[: cursor.offset]
    return reader.recall(recorded, [before[:7], before[7:]], limits)


def at_once(reader: Reader, log: bytes, limits: Limits) -> list[tuple[object, ...]]:
    reading = Reading(reader, limits)
    reading.read(log, end=True)
    return reading.results


@each_reader
@laws
@given(data=st.data(), limits=limits)
def test_reading_in_pieces_and_after_restarts_equals_reading_at_once(
    reader: Reader, data: st.DataObject, limits: Limits
) -> None:
    log = log_of(data, reader)
    cuts = sorted(data.draw(st.lists(st.tuples(st.integers(0, len(log)), st.booleans()), max_size=8)))
    reading = Reading(reader, limits)
    for cut, restart in cuts:
        reading.read(log[:cut], end=False)
        if restart:
            reading.restart(log)
    reading.read(log, end=True)
    assert reading.results == at_once(reader, log, limits)


@each_reader
@laws
@given(data=st.data(), limits=limits)
def test_any_cursor_is_a_place_to_go_on(reader: Reader, data: st.DataObject, limits: Limits) -> None:
    """Also one in the middle of a record that is too long: what is left of that comes first."""
    log = log_of(data, reader)
    whole = at_once(reader, log, limits)
    cursor, done = BEGIN, 0
    while True:
        rest = Reading(reader, limits, cursor if cursor.inside else recalled(reader, cursor, log, limits))
        rest.read(log, end=True)
        left = whole[done:]
        if cursor.inside:
            assert rest.results[0][:2] == left[0][:2] and left[0][3].endswith(rest.results[0][3])
            assert rest.results[1:] == left[1:]
        else:
            assert rest.results == left
        folded = reader.fold(cursor, log[cursor.offset :], False, limits)
        done += sum(not (isinstance(item, Bad) and item.more) for item in folded.items)
        if folded.cursor == cursor:
            return
        cursor = folded.cursor


@each_reader
@laws
@given(
    log=st.binary(max_size=300),
    limits=limits,
    state=st.text(max_size=20),
    offset=st.integers(0, 1 << 40),
    end=st.booleans(),
)
def test_nothing_raises(reader: Reader, log: bytes, limits: Limits, state: str, offset: int, end: bool) -> None:
    """Also not with a state that another version of the reader wrote."""
    for inside in (False, True):
        folded = reader.fold(Cursor(offset, offset, state, inside), log, end, limits)
        assert offset <= folded.cursor.offset <= offset + len(log)


@each_reader
@laws
@given(path=st.text(max_size=30), head=st.binary(max_size=100), data=st.data())
def test_recognising_never_raises(reader: Reader, path: str, head: bytes, data: st.DataObject) -> None:
    for beginning in (head, log_of(data, reader)):
        assert reader.recognise(path, beginning) in (True, False)


OTHERS = (None, 0, -1, 1 << 70, 0.5, True, "", "a", "{", [], ["a"], [{}], {}, {"a": 1})


def places(value: object, at: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where something stands in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, child in inner for place in places(child, (*at, key)))]


def with_another(value: Any, place: tuple[Any, ...], other: object) -> object:
    """A JSON value with something else in one place."""
    if not place:
        return other
    copy = value.copy()
    copy[place[0]] = with_another(value[place[0]], place[1:], other)
    return copy


@each_reader
@laws
@given(data=st.data())
def test_a_value_of_any_type_in_any_place_is_no_accident(reader: Reader, data: st.DataObject) -> None:
    """Readers meet versions of programs that nobody knows today."""
    log = []
    for sample in data.draw(st.lists(st.sampled_from(SAMPLES[reader.name]), min_size=1, max_size=5)):
        try:
            value = msgspec.json.decode(sample)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            log.append(sample)
            continue
        place = data.draw(st.sampled_from(places(value)))
        other = data.draw(st.sampled_from(OTHERS))
        log.append(json.dumps(with_another(value, place, other)).encode() + b"\n")
    for kind, _, reason, *_ in at_once(reader, b"".join(log), Limits()):
        assert kind != "bad" or "this reader fails" not in str(reason)


@each_reader
def test_a_sample_of_each_is_found_and_one_refused(reader: Reader) -> None:
    """The laws would also hold for a reader that finds nothing."""
    results = at_once(reader, b"".join(SAMPLES[reader.name]), Limits())
    assert {kind for kind, *_ in results} == {"found", "bad"}


# --- the table ----------------------------------------------------------------------------------------------------


def test_names_are_told_apart() -> None:
    assert len({reader.name for reader in READERS}) == len(READERS)
    assert READERS[-1].name == "records", "what journals say nothing about was read so"


def test_a_source_stays_with_the_reader_that_began_it() -> None:
    table = ReaderTable([ToyConversations(), JsonlRecords()])
    toy = table.recognise("a.jsonl", b"> how?\n")
    assert (toy.name, table.recognise("a.jsonl", b'{"text"').name, table.recognise("", b"").name) == (
        "toy",
        "records",
        "records",
    )
    cursor = toy.fold(BEGIN, b"> how?\n", False, Limits()).cursor
    assert "how?" in cursor.state
    assert table.resume(table.recorded(toy, cursor), cursor.offset, cursor.line) == (toy, cursor)
    assert table.resume("", 7, 1) == (table.recognise("", b""), Cursor(7, 1))
    assert table.recorded(JsonlRecords(), cursor) != ""


def test_records_are_recorded_as_ever() -> None:
    table = ReaderTable()
    assert table.recorded(table.recognise("a.jsonl", b""), Cursor(7, 1)) == ""


@pytest.mark.parametrize("recorded", ['{"format":"toy","state":""}', "nonsense", '{"format":"records","more":1}'])
def test_a_source_of_another_version_is_refused(recorded: str) -> None:
    with pytest.raises(SourceRefused, match="does not know") as refused:
        ReaderTable().resume(recorded, 7, 1)
    assert "version of apollod" in refused.value.line()
