"""Reads JSON documents record by record: an implementation of `Reader.fold` for one JSON value.

The records of an array are its elements; those of an object are its members, or for a member that holds a list of
records, each of its elements. So a document of any length is read with a bounded buffer. Only brackets and strings are
parsed here: the text between two commas is passed on as JSON, valid or not.
"""

import re
from collections import Counter
from functools import partial
from typing import NamedTuple

import msgspec

from apollod.curation.formats.reader import BOM, Bad, Cursor, Folded, Item, Limits, Split, Take, whole_words
from apollod.curation.formats.session_reader import json_or
from apollod.curation.redaction import redact

BLANK = re.compile(rb"[\s,]*+")
MEMBER = re.compile(rb'"((?:[^"\\]|\\.)*+)"\s*+:\s*+(\S)', re.DOTALL)
STRINGS = rb'"(?:[^"\\]++|\\.)*+"'
BETWEEN_COMMAS = re.compile(rb'(?:[^"{}\[\],]++|' + STRINGS + rb")*+", re.DOTALL)
IN_BRACKETS = re.compile(rb'(?:[^"{}\[\]]++|' + STRINGS + rb")*+", re.DOTALL)
REST_OF_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
NO_DOCUMENT = re.compile(rb"[^\[{]*+")

OPEN, CLOSE = b"[{", b"]}"
TOP, ARRAY, OBJECT = "", "[", "{"


class _Place(msgspec.Struct, omit_defaults=True):
    """The place of a cursor in the document."""

    mode: str = TOP
    """outside (""), in the document's array or object, or in the list of this member"""
    number: int = 0
    """records before it"""
    depth: int = 0
    string: bool = False
    """within a record that is too long: depth of open brackets, and true inside a string"""


class _Scanned(NamedTuple):
    """Position up to which a record was scanned."""

    at: int
    depth: int
    string: bool
    complete: bool


def fold_document(
    cursor: Cursor, data: bytes, end: bool, limits: Limits, take: Take, lists: frozenset[str] = frozenset()
) -> Folded:
    """Give each record of `data` to `take`, as JSON: a member of the document's object, or an element of one of its
    `lists`, as an object with that one member. A record is complete with the comma or bracket behind it, or by `end`. A
    record over the limit is refused piece by piece without being held whole. Secrets are redacted before a record is
    parsed."""
    place, at, inside = json_or(cursor.state, _Place(), _Place), 0, cursor.inside
    items: list[Item] = []
    counts = Counter[str]()
    while len(items) < limits.items:
        if not inside:
            at = _skip(data, at, cursor.offset)
            if at == len(data):
                if not end or place.mode == TOP:
                    break
                items.append(Bad(place.number + 1, "the document ends before it is closed; is it whole?", b""))
                place = _Place(number=place.number + 1)
                continue
            opened = _step(data, at, place, limits, lists)
            if opened:
                at += opened
                continue
        elif at == len(data) and not end:
            break
        scanned = _scan(data, at, place)
        complete = scanned.complete or end
        stop = len(data) if end and not scanned.complete else scanned.at
        too_long = inside or stop - at > limits.record_bytes
        if not complete and (items or not too_long or stop == at):  # an incomplete piece comes alone
            break
        if not complete:
            scanned = _at_a_word(data, at, place, scanned)
            stop = scanned.at
        piece, secrets = redact(data[at:stop])
        counts.update({f"redacted: {kind}": number for kind, number in secrets.items()})
        if too_long:
            why = f"the record is longer than {limits.record_bytes} bytes; leave out what the model need not see"
            items.append(Bad(place.number + 1, why, piece, more=not complete))
        else:
            items += take(place.number + 1, _as_json(piece, place.mode))
        at, inside = stop, not complete
        if complete:  # including its terminator, so that the bytes before the cursor show that it is complete
            place = _Place(_after(data[at : at + 1], place.mode), place.number + 1)
            at = min(at + 1, len(data))
        else:
            place = _Place(place.mode, place.number, scanned.depth, scanned.string)
            break
    # records before the cursor; opening bytes alone count as one, since there was progress
    line = max(cursor.line, place.number, 1) if cursor.offset + at else cursor.line
    return Folded(Cursor(cursor.offset + at, line, _state(place), inside), tuple(items), counts)


def in_documents(*lists: str) -> Split:
    """`fold_document` for documents whose records stand in these lists."""
    return partial(fold_document, lists=frozenset(lists))


def _skip(data: bytes, at: int, offset: int) -> int:
    if offset + at == 0 and data.startswith(BOM):
        at = len(BOM)
    return BLANK.match(data, at).end()  # type: ignore[union-attr]


def _step(data: bytes, at: int, place: _Place, limits: Limits, lists: frozenset[str]) -> int:
    """Consume the opening or closing of the document or of a list in it, if it comes next, and update `place`. Returns
    the number of bytes."""
    byte = data[at : at + 1]
    if place.mode == TOP:
        place.mode = _after(byte, TOP)
        return len(place.mode)
    if byte in CLOSE:
        place.mode = _after(byte, place.mode)
        return 1
    member = MEMBER.match(data, at) if place.mode == OBJECT else None
    if member is None or member[2] != b"[" or member.end() - at > limits.record_bytes:
        return 0
    name = member[1].decode("utf-8", "replace")
    if name not in lists:
        return 0
    place.mode = name
    return member.end() - at


def _after(byte: bytes, mode: str) -> str:
    """The mode after an opening or closing byte."""
    if mode == TOP:
        return byte.decode() if byte and byte in OPEN else TOP
    return mode if not byte or byte not in CLOSE else TOP if mode in (ARRAY, OBJECT) else OBJECT


def _scan(data: bytes, at: int, place: _Place) -> _Scanned:
    """Find the end of a record, which may have begun in an earlier piece."""
    if place.mode == TOP:
        at = NO_DOCUMENT.match(data, at).end()  # type: ignore[union-attr]
        return _Scanned(at, 0, False, at < len(data))
    depth, string = place.depth, place.string
    while at < len(data):
        if string:
            at = REST_OF_STRING.match(data, at).end()  # type: ignore[union-attr]
            if at == len(data) or data[at : at + 1] == b"\\":  # the escaped character is in the next piece
                return _Scanned(at, depth, True, False)
            at, string = at + 1, False
            continue
        at = (IN_BRACKETS if depth else BETWEEN_COMMAS).match(data, at).end()  # type: ignore[union-attr]
        byte = data[at : at + 1]
        if not byte:
            break
        if byte == b'"':
            at, string = at + 1, True
        elif byte in OPEN:
            at, depth = at + 1, depth + 1
        elif depth == 0:
            return _Scanned(at, 0, False, True)
        else:
            at, depth = at + 1, depth - 1
    return _Scanned(at, depth, string, False)


def _at_a_word(data: bytes, at: int, place: _Place, scanned: _Scanned) -> _Scanned:
    """An earlier stop at which no secret is cut in two, if there is one."""
    earlier = _scan(data[: at + whole_words(data[at : scanned.at])], at, place)
    return earlier if earlier.at > at else scanned


def _as_json(piece: bytes, mode: str) -> bytes:
    if mode in (TOP, ARRAY):
        return piece
    return b"{" + piece + b"}" if mode == OBJECT else b"{" + msgspec.json.encode(mode) + b":" + piece + b"}"


def _state(place: _Place) -> str:
    return msgspec.json.encode(place).decode() if place != _Place() else ""
