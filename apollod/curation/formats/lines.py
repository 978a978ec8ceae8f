"""Splits a log into lines: the usual part of `Reader.fold`."""

from collections import Counter

from apollod.curation.formats.reader import Bad, Cursor, Folded, Item, Limits, Take
from apollod.curation.redaction import redact

BOM = b"\xef\xbb\xbf"


def fold_lines(cursor: Cursor, data: bytes, end: bool, limits: Limits, take: Take) -> Folded:
    """Give each complete line of `data` to `take`, with its newline. The last one is complete by `end`, too.

    A line over the limit is refused piece by piece without being held whole. A byte order mark at the very beginning is
    dropped. The state in the cursor is passed on as it is. Secrets are redacted before a line is parsed.
    """
    at, line, inside = 0, cursor.line, cursor.inside
    items: list[Item] = []
    counts = Counter[str]()
    while len(items) < limits.items and (at < len(data) or (end and inside)):
        begin, at = at, data.find(b"\n", at) + 1
        complete = at > 0 or end
        at = at or len(data)
        too_long = inside or at - begin > limits.record_bytes
        if not complete and (begin > 0 or not too_long):  # an incomplete piece comes alone
            at = begin
            break
        if not complete:
            at = begin + whole_words(data[begin:at])
        piece, secrets = redact(data[begin:at])
        if secrets:
            counts.update({f"redacted: {kind}": number for kind, number in secrets.items()})
        if too_long:
            items.append(Bad(line + 1, too_long_reason(limits), piece, more=not complete))
        else:
            items += take(line + 1, piece.removeprefix(BOM) if cursor.offset + begin == 0 else piece)
        inside = not complete
        line += complete
    return Folded(Cursor(cursor.offset + at, line, cursor.state, inside), tuple(items), counts)


def whole_words(piece: bytes) -> int:
    """Number of bytes of a piece to release now so that, if possible, no secret is cut in two."""
    last = max(piece.rfind(mark, len(piece) // 2) for mark in (b" ", b'"', b"\\", b"\t"))
    key = piece.rfind(b"-----BEGIN", len(piece) // 2)
    if key > 0 and b"-----END" not in piece[key:]:
        last = key
    return last if last > 0 else len(piece)


def too_long_reason(limits: Limits) -> str:
    """The reason for refusing an overlong line unread."""
    return f"the line is longer than {limits.record_bytes} bytes; split it, or leave out what the model need not see"
