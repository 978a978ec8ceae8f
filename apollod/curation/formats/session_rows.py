"""Turns the rows of a session into moments: only new ones, even if earlier rows have changed.

A session is read in its present state, from some way before the last record covered by moments (`given`): earlier
compaction, rewinding and deletion do not matter. Nothing is remembered but the cursor, so that going on and starting
again are one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from apollod.curation.assembly import Assembly
from apollod.curation.conversation import Moment
from apollod.curation.formats.database_reader import DatabaseReader, Key, Row, Value
from apollod.curation.formats.reader import Bad, Item
from apollod.curation.formats.session_reader import Heard, left_out
from apollod.curation.redaction import redact
from apollod.errors import RecordRefused

TAKEN_BACK = "dropped: taken back by the user (rewound)"

RawValue = bytes | int | float | None
RawRow = Mapping[str, RawValue]
"""Values as the database returns them; text is supposed to be UTF-8"""


class SessionCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position in a session, beside the numbers of `source.consumed`."""

    given: Key | None = None
    """key of the last record fully covered by moments"""
    mark: str = ""
    """digest of that record"""
    seen: Key | None = None
    """key of the last record that was counted"""
    waits: bool = False
    """True if something is in no moment yet"""
    back: int = 0
    """answers behind `given` that were counted as taken back"""
    stamp: str = ""
    """the session's stamp when it was read, see `Queries.sessions`"""


class RawSession(NamedTuple):
    """The rows of a session, read in one transaction."""

    facts: RawRow
    records: Sequence[tuple[Key, Sequence[RawRow]]]
    first: int
    """number (from 1) of the first record within the session"""
    cut: bool = False
    """more rows exist that were not fetched"""


class SessionRead(NamedTuple):
    """The result of reading a session."""

    cursor: SessionCursor
    line: int
    """records of the session so far"""
    items: tuple[Item, ...]
    counts: Mapping[str, int]
    more: bool
    """True if more is left to read"""


def written_anew(reader: DatabaseReader, raw: RawSession, cursor: SessionCursor) -> bool:
    """True if the record at `cursor.given` is gone or changed, so that its key is meaningless."""
    if not reader.keys_return or cursor.given is None:
        return False
    return next((_mark(rows) for key, rows in raw.records if key == cursor.given), "") != cursor.mark


def read_session(
    reader: DatabaseReader, raw: RawSession, cursor: SessionCursor, record_bytes: int, items: int, settle: bool
) -> SessionRead:
    """The new moments of a session, up to `items` plus those that one record closes. `settle`: the session is idle, so
    close its waiting turn, too."""
    counts = Counter[str]()
    keys = [key for key, _ in raw.records]
    given, seen = _behind(keys, cursor.given), _behind(keys, cursor.seen)
    facts, _ = _clean(raw.facts, lenient=True)
    heard, secrets, data = _hear(reader, facts, raw, record_bytes)
    assembly, found = Assembly(), list[Item]()
    assembly.feed(raw.first, (reader.session(facts),))
    for at, one in enumerate(heard[:given]):
        assembly.feed(raw.first + at, one.entries)
    assembly.skip(raw.first + given - 1)
    done, at, more = raw.first + given - 1, given, False
    for at in range(given, len(heard)):
        moments = assembly.feed(raw.first + at, heard[at].entries)
        if at < seen:  # what was taken back or refused was counted when first seen
            moments = [moment for moment in moments if isinstance(moment, Moment) and not moment.taken_back]
        else:
            counts.update(left_out(heard[at].entries))
            counts.update(secrets[at])
            if heard[at].problem:
                found.append(Bad(raw.first + at, heard[at].problem, data[at]))
        found += moments
        given_now = (one.line for one in moments if isinstance(one, Moment) and not one.taken_back)
        done = max([done, assembly.given, *given_now])
        if len(found) >= items:
            more = at + 1 < len(heard)
            break
    end = at + 1 if heard[given:] else given
    if (settle or raw.cut) and not more:
        found += assembly.settle()
        done = max(done, assembly.given)
    if raw.cut and not more:  # the next read starts without the large context before
        done = raw.first + end - 1
    last = done - raw.first
    back = sum(one.gone for one in heard[given:end])
    if back > cursor.back:
        counts[TAKEN_BACK] += back - cursor.back
    new = SessionCursor(
        given=keys[last] if 0 <= last < len(keys) else cursor.given,
        mark=_mark(raw.records[last][1]) if reader.keys_return and 0 <= last < len(keys) else "",
        seen=keys[max(seen, end) - 1] if max(seen, end) else cursor.seen,
        waits=more or assembly.waits,
        back=sum(one.gone for one in heard[last + 1 : end]),
    )
    return SessionRead(new, max(raw.first + max(seen, end) - 1, 0), tuple(found), counts, more or raw.cut)


def _behind(keys: Sequence[Key], key: Key | None) -> int:
    """The number of keys up to and including this one."""
    return 0 if key is None else sum(1 for one in keys if _up_to(one, key))


def _up_to(one: Key, key: Key) -> bool:
    """True if `one` <= `key`. Keys of two types come from two versions of the agent: then False."""
    if isinstance(one, str) or isinstance(key, str):
        return isinstance(one, str) and isinstance(key, str) and one <= key
    return one <= key


def _hear(
    reader: DatabaseReader, facts: Row, raw: RawSession, record_bytes: int
) -> tuple[list[Heard], list[Mapping[str, int]], list[bytes]]:
    """The content of each record, the secrets found in it, and its bytes without them."""
    heard: list[Heard | None] = []
    good: list[Sequence[Row]] = []
    secrets: list[Mapping[str, int]] = []
    data: list[bytes] = []
    for _, rows in raw.records:
        found = Counter[str]()
        try:
            clean = list[Row]()
            for row in rows:
                size = row.get("size")
                if isinstance(size, int) and size > record_bytes:
                    raise RecordRefused(
                        f"the record is longer than {record_bytes} bytes",
                        "raise [inbox] max_line_bytes if it is to be learned",
                    )
                values, kinds = _clean(row)
                clean.append(values)
                found.update(kinds)
            good.append(clean)
            heard.append(None)
            data.append(_as_bytes(clean))
        except RecordRefused as error:
            heard.append(Heard(problem=error.line()))
            data.append(_as_bytes([_clean(row, lenient=True)[0] for row in rows]))
        secrets.append(found)
    answers = iter(reader.hear(facts, good))
    whole: list[Heard] = []
    for one in heard:
        answer = one if one is not None else next(answers, None)
        if answer is None:
            break
        whole.append(answer)
    return whole, secrets, data


def _clean(row: RawRow, lenient: bool = False) -> tuple[dict[str, Value], Mapping[str, int]]:
    """Values with redacted text, and the counts of secrets. Raises RecordRefused for text that is not UTF-8; if
    `lenient`, such text is left out."""
    values: dict[str, Value] = {}
    counts = Counter[str]()
    for name, value in row.items():
        if not isinstance(value, bytes):
            values[name] = value
            continue
        clean, secrets = redact(value)
        counts.update({f"redacted: {kind}": number for kind, number in secrets.items()})
        try:
            values[name] = clean.decode()
        except UnicodeDecodeError as error:
            if not lenient:
                raise RecordRefused(f"column {name} is no UTF-8 text", "nothing to do; it is kept as it is") from error
            values[name] = None
    return values, counts


def _as_bytes(rows: Iterable[Row]) -> bytes:
    """Rows that could not be read, as JSON lines."""
    return b"".join(msgspec.json.encode(dict(row)) + b"\n" for row in rows)


def _mark(rows: Iterable[RawRow]) -> str:
    digest = blake2b(digest_size=8)
    for row in rows:
        digest.update(repr(sorted(row.items())).encode())
    return digest.hexdigest()
