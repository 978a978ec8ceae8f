"""JSON documents, cut into their records."""

from collections.abc import Iterable

import pytest

from apollod.curation.formats.document import fold_document
from apollod.curation.formats.reader import Bad, Cursor, Item, Limits


def cut(text: bytes, *, bytes_at_once: int = 1 << 20, limits: Limits | None = None) -> list[bytes | str]:
    """The records of a document, and why others are refused."""
    records: list[bytes | str] = []
    long: list[bytes] = []

    def take(number: int, piece: bytes) -> Iterable[Item]:
        return (Bad(number, "a record", piece),)

    cursor, given = Cursor(), 0
    while True:
        given = min(given + bytes_at_once, len(text))
        end = given == len(text)
        while True:
            folded = fold_document(
                cursor, text[cursor.offset : given], end, limits or Limits(), take, frozenset({"steps"})
            )
            for item in folded.items:
                assert isinstance(item, Bad)
                if item.reason == "a record":
                    records.append(item.data)
                    continue
                long.append(item.data)
                if not item.more:
                    records.append(item.reason.split(";")[0] + "".join(f": {b''.join(long).decode()}"))
                    long.clear()
            if folded.cursor == cursor and not folded.items:
                break
            cursor = folded.cursor
        if end:
            assert cursor.offset == len(text) and not cursor.inside
            return records


OBJECT = b' {"a": 1, "steps" : [{"b": "],}\\""}, [2], "x"], "c": {"steps": [3]}} '


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_members_and_elements_are_records(size: int) -> None:
    assert cut(OBJECT, bytes_at_once=size) == [
        b'{"a": 1}', b'{"steps":{"b": "],}\\""}}', b'{"steps":[2]}', b'{"steps":"x"}', b'{"c": {"steps": [3]}}',
    ]  # fmt: skip
    assert cut(b'\xef\xbb\xbf[{"a": [1, 2]}\n,\n3 ]\n', bytes_at_once=size) == [b'{"a": [1, 2]}\n', b"3 "]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_what_is_no_document_is_given_on_or_refused(size: int) -> None:
    assert cut(b"", bytes_at_once=size) == []
    assert cut(b"hello", bytes_at_once=size) == [b"hello"]
    assert cut(b"[1, tru e]{}x", bytes_at_once=size) == [b"1", b"tru e", b"x"]
    assert cut(b'[{"a": [', bytes_at_once=size) == [b'{"a": [', "the document ends before it is closed: "]
    assert cut(b'["\\', bytes_at_once=size) == [b'"\\', "the document ends before it is closed: "]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_a_record_that_is_too_long_is_refused_and_the_next_is_read(size: int) -> None:
    text = b'{"a": "' + b'x\\"' * 20 + b'", "steps": [[1, {"b": "' + b"]" * 30 + b'"}], 2], "c": 3}'
    long, short = Limits(record_bytes=12), "the record is longer than 12 bytes: "
    assert cut(text, bytes_at_once=size, limits=long) == [
        short + text[1:68].decode(), short + '[1, {"b": "' + "]" * 30 + '"}]', b'{"steps":2}', b'{"c": 3}',
    ]  # fmt: skip
    none = cut(b'{"steps" : [1, 2], "b": 2}', bytes_at_once=size, limits=Limits(record_bytes=10))
    assert none == ["the record is longer than 10 bytes: " + '"steps" : [1, 2]', b'{"b": 2}'], "its name is too long"
