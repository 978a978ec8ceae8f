"""Replaces credentials by placeholders before anything of a log is kept: journal, quarantine, messages to people.

Works on the bytes of a record as they stand in the file, JSON escapes and all, so that there is one place for it. The
rules (`secret_rules.py`) see the same text with escapes decoded.

A placeholder names the kind and 16 bits of a hash: the same secret is the same placeholder everywhere, two different
ones are told apart in a conversation, and a password cannot be found by trial.

The level is set once per process (`use`), at its start, so that no caller can forget it.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import pairwise

from apollod.curation.secret_rules import Span, shipped

_AGAIN_MIN, _AGAIN_MOST = 12, 100
"""least bytes of a secret to search for in the rest of the record, too, and most such secrets"""


class _Level:
    personal = False


def use(personal: bool) -> None:
    """From now on in this process, redact personal data, too, or credentials alone."""
    _Level.personal = personal


def redact(data: bytes) -> tuple[bytes, Mapping[str, int]]:
    """The bytes with a placeholder for each secret, and the number of secrets by kind."""
    if not data.strip():  # a blank line costs nothing
        return data, _NONE
    spans = shipped(_Level.personal).spans(_read(data))
    if not spans:
        return data, _NONE
    pieces, at, counts = list[bytes](), 0, Counter[str]()
    for begin, end, kind in _with_copies(data, _in_strings(data, _in_record(data, spans))):
        pieces += [data[at:begin], placeholder(kind, data[begin:end])]
        at = end
        counts[kind] += 1
    return b"".join([*pieces, data[at:]]), counts


def redact_text(text: str) -> str:
    """The text with a placeholder for each secret; characters that UTF-8 cannot encode, such as half a surrogate pair,
    become `?`."""
    return redact(text.encode("utf-8", "replace"))[0].decode()


def placeholder(kind: str, secret: bytes) -> bytes:
    """The placeholder of a secret; it needs no escaping in JSON."""
    return b"[redacted %s %s]" % (kind.encode(), blake2b(secret, digest_size=2).hexdigest().encode())


_NONE: Mapping[str, int] = {}
_PLACEHOLDER = re.compile(rb"\[redacted [^\]\[]{1,64}\]")
_ESCAPE = re.compile(rb"\\+(?:[nrt\"]|u[0-9a-fA-F]{4}(?:\[[0-9;]{0,12}m)?)?")
_BY_CODE = re.compile(rb"\\+u(?:00([2-7][0-9a-fA-F])|[0-9a-fA-F]{4})(?:\[[0-9;]{0,12}m)?")
_LETTERS = ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\", b" "))


def _read(data: bytes) -> bytes:
    """The text with each JSON escape, however deep, as the one character that it means, and placeholders as blanks.

    Each match of `_ESCAPE` becomes one byte, and everything else stays.
    """
    if b"\\" in data:
        if b"\\u" in data:  # also terminal colours, which end at a letter
            data = _BY_CODE.sub(lambda match: bytes([int(match[1] or b"20", 16)]).replace(b"\\", b" "), data)
        while b"\\\\" in data:
            data = data.replace(b"\\\\", b"\\")
        for escape, meant in _LETTERS:
            data = data.replace(escape, meant)
    if b"[redacted " in data:
        data = _PLACEHOLDER.sub(lambda match: b"\n" * len(match.group()), data)
    return data


def _in_record(data: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """Map spans of the text from `_read` back to the bytes of the record."""
    read, begins, ends = 0, [0], [0]
    for match in _ESCAPE.finditer(data):
        read += match.start() - ends[-1] + 1
        begins.append(read)
        ends.append(match.end())

    def place(at: int) -> int:
        after = bisect_right(begins, at) - 1
        return ends[after] + at - begins[after]

    for begin, end, kind in spans:
        yield Span(place(begin), place(end), kind)


_QUOTE = re.compile(rb'(?<!\\)(?:\\\\)*"')


def _in_strings(data: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """Spans without the quotes of a JSON string, split at quotes within."""
    for begin, end, kind in spans:
        marks = [match.end() - 1 for match in _QUOTE.finditer(data, begin, end)]
        for start, stop in pairwise([begin - 1, *marks, end]):
            if not marks or stop - start > 4:
                yield Span(start + 1, stop, kind)


def _with_copies(data: bytes, spans: Iterable[Span]) -> list[Span]:
    """The spans and those of further copies of the same secrets in the record."""
    found = sorted(spans)
    kinds = {data[begin:end]: kind for begin, end, kind in reversed(found) if end - begin >= _AGAIN_MIN}
    for secret in sorted(kinds, key=lambda secret: (-len(secret), secret))[:_AGAIN_MOST]:
        begin = data.find(secret)
        while begin >= 0:
            end = begin + len(secret)
            after = bisect_right(found, begin, key=lambda span: span.begin)
            if not (after and found[after - 1].end > begin) and not (after < len(found) and found[after].begin < end):
                found.insert(after, Span(begin, end, kinds[secret]))
            begin = data.find(secret, end)
    return found
