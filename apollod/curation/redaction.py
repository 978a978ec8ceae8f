"""Credentials become placeholders before anything of a log is kept: journal, quarantine, messages to people.

Works on the bytes of a record as they stand in the file, JSON escapes and all, so that there is one place for it. The
rules (`secret_rules.py`) look at the same text with escapes as what they mean.

A placeholder says the kind and 16 bits of a hash: the same secret is the same placeholder everywhere, two different
ones are told apart in a conversation, and nobody can find out a password by trying.

The level is one for a process (`use`), chosen where it starts: each place that redacts has it, and none can forget it.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import pairwise

from apollod.curation.secret_rules import Span, shipped

_AGAIN_MIN, _AGAIN_MOST = 12, 100
"""bytes of a secret that is looked for in the rest of the record, too, and how many are"""


class _Level:
    personal = False


def use(personal: bool) -> None:
    """Take out personal data, too, from here on in this process, or credentials alone."""
    _Level.personal = personal


def redact(data: bytes) -> tuple[bytes, Mapping[str, int]]:
    """The bytes with a placeholder for each secret, and how many of each kind were there."""
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
    """The text with a placeholder for each secret; what is no UTF-8, such as half a surrogate pair, becomes `?`."""
    return redact(text.encode("utf-8", "replace"))[0].decode()


def placeholder(kind: str, secret: bytes) -> bytes:
    """What stands for a secret; it needs no escaping in JSON."""
    return b"[redacted %s %s]" % (kind.encode(), blake2b(secret, digest_size=2).hexdigest().encode())


_NONE: Mapping[str, int] = {}
_PLACEHOLDER = re.compile(rb"\[redacted [^\]\[]{1,64}\]")
_ESCAPE = re.compile(rb"\\+(?:[nrt\"]|u[0-9a-fA-F]{4}(?:\[[0-9;]{0,12}m)?)?")
_BY_CODE = re.compile(rb"\\+u(?:00([2-7][0-9a-fA-F])|[0-9a-fA-F]{4})(?:\[[0-9;]{0,12}m)?")
_LETTERS = ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\", b" "))


def _read(data: bytes) -> bytes:
    """The text with each escape of JSON, however deep, as the one character that it means, and placeholders as blanks.

    Each match of `_ESCAPE` becomes one byte, and everything else stays.
    """
    if b"\\" in data:
        if b"\\u" in data:  # also colours of terminals, which end at a letter
            data = _BY_CODE.sub(lambda match: bytes([int(match[1] or b"20", 16)]).replace(b"\\", b" "), data)
        while b"\\\\" in data:
            data = data.replace(b"\\\\", b"\\")
        for escape, meant in _LETTERS:
            data = data.replace(escape, meant)
    if b"[redacted " in data:
        data = _PLACEHOLDER.sub(lambda match: b"\n" * len(match.group()), data)
    return data


def _in_record(data: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """Spans of what was read, in the bytes of the record."""
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
    """Without the quotes in which a string of JSON stands, and apart on both sides of one."""
    for begin, end, kind in spans:
        marks = [match.end() - 1 for match in _QUOTE.finditer(data, begin, end)]
        for start, stop in pairwise([begin - 1, *marks, end]):
            if not marks or stop - start > 4:
                yield Span(start + 1, stop, kind)


def _with_copies(data: bytes, spans: Iterable[Span]) -> list[Span]:
    """And where else in the record the same secrets stand."""
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
