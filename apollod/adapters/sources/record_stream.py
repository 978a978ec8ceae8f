"""Feeds a stream of bytes to a `Reader` piece by piece, and makes lines of a batch from its items, or from lines that
came over a socket."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from apollod.adapters.sources.quarantine import Quarantine, QuarantinedFile
from apollod.adapters.sources.unpack import Read
from apollod.core.facts.intake.events import Evidence, speaks_against
from apollod.core.inputs import Batch, Line
from apollod.curation.conversation import Moment, Opinion, Remark
from apollod.curation.formats.jsonl_records import read_record
from apollod.curation.formats.reader import BOM, Bad, Cursor, Found, Item, Limits, Reader
from apollod.curation.lessons.line_lessons import asked_in
from apollod.curation.moments import Gathered, Learned, Rules, gathered
from apollod.curation.preferences import RATED_BAD, compared
from apollod.curation.redaction import redact
from apollod.curation.signals.cues import evidence_of, instead_of, unscored
from apollod.curation.signatures import signature, topic

CHUNK_BYTES = 64 << 10
LINE_BYTES_MAX = 1 << 20
UNLEARNED = "unlearned"
"""key under which answers of sessions that give no example are counted a second time"""

EndAhead = Callable[[Cursor, Cursor], bool]
"""(begin of a record, a cursor in the middle of it) -> True if its end is in the file"""


class Folding:
    """One pass of a reader over a stream. `cursor` is after everything returned; at most one record is buffered.

    `read` returns the bytes from the cursor on. `complete`: no more bytes will follow those that it returns.
    """

    def __init__(self, reader: Reader, read: Read, cursor: Cursor, record_bytes: int, complete: bool) -> None:
        self._reader = reader
        self._read = read
        self._record_bytes = record_bytes
        self._complete = complete
        self._ended = False
        self._rest = b""
        self.cursor = cursor
        self.counts = Counter[str]()
        """counts of input without an item so far, as in `Folded.counts`"""

    def next(self, items: int) -> tuple[Item, ...] | None:
        """Read on until the cursor moves, and return the items passed, if any; None if there is nothing more (now)."""
        limits = Limits(self._record_bytes, items)
        while True:
            before = self.cursor
            folded = self._reader.fold(before, self._rest, self._ended, limits)
            self._rest = self._rest[folded.cursor.offset - before.offset :]
            self.cursor = folded.cursor
            self.counts.update(folded.counts)
            if folded.items or folded.cursor != before:
                return folded.items
            if self._ended or not self._fill():
                return None

    def skip(self, size: int) -> None:
        """Skip bytes before the cursor, if `read` begins at 0. Raises EOFError when there are fewer."""
        while size:
            chunk = self._read(min(CHUNK_BYTES, size))
            if not chunk:
                raise EOFError("the file became shorter")
            self._rest, size = chunk[size:], max(0, size - len(chunk))

    def _fill(self) -> bool:
        chunk = self._read(CHUNK_BYTES)
        self._rest += chunk
        self._ended = self._complete and not chunk
        return bool(chunk) or self._ended


class RecordStream:
    """Lines of a source for batches; bytes of bad ones are in quarantine when they are returned.

    `rules` decide what is learned from conversations. `end_ahead` is called before a record without a visible end is
    kept; None: the end will come.
    """

    def __init__(
        self, folding: Folding, quarantine: Quarantine, rules: Rules, end_ahead: EndAhead | None = None
    ) -> None:
        self._folding = folding
        self._quarantine = quarantine
        self._rules = rules
        self._end_ahead = end_ahead
        self.cursor = folding.cursor
        """after the last line returned: reading may resume here"""

    def next(self, most: int) -> list[Line] | None:
        """Return the next lines, up to `most` and the rest of a record; None when there are none (now), then always
        None."""
        items = self._folding.next(most)
        if items is None:
            return None
        if items and isinstance(items[0], Bad) and items[0].more:
            kept = self._keep_long(items[0])
            if kept is None:
                return None
            lines = [_bad_line(items[0], kept)]
        else:
            lines = self.lines_of(items)
        self.cursor = self._folding.cursor
        return lines

    def take_counts(self) -> tuple[dict[str, int], int]:
        """Return counts of lines without an example since the last call, see `counted`."""
        counts, self._folding.counts = self._folding.counts, Counter()
        return counted(counts)

    def lines_of(self, items: Iterable[Item]) -> list[Line]:
        """See the function of this name."""
        return lines_of(items, self._quarantine, self._rules, self._folding.counts)

    def _keep_long(self, item: Bad) -> QuarantinedFile | None:
        """Move an over-long record into quarantine while it is read; None if its end is missing yet."""
        if self._end_ahead is not None and not self._end_ahead(self.cursor, self._folding.cursor):
            return None
        with self._quarantine.begin() as keeping:
            keeping.write(item.data)
            while item.more:
                items = self._folding.next(1)
                if items is None:
                    return None
                (item,) = (each for each in items if isinstance(each, Bad))
                keeping.write(item.data)
            return keeping.commit()


def batch_of_lines(
    lines: Sequence[bytes],
    source: str,
    quarantine: Path,
    line_max: int = LINE_BYTES_MAX,
    first: int = 1,
    rules: Rules = Rules(),  # noqa: B008
) -> Batch:
    """Make a batch of lines that came over a socket, without a position: a caller waits for these. `first`: number of
    the first line within its source.

    Each line is one record, whatever white space is in it. Blocking; raises OSError when a bad line cannot be kept.
    """
    kept_in, limits = Quarantine(quarantine), Limits(line_max)
    if first == 1 and lines:
        lines = [lines[0].removeprefix(BOM), *lines[1:]]
    clean = (redact(raw)[0] for raw in lines)
    items = (item for number, raw in enumerate(clean, first) for item in read_record(number, raw, limits))
    taken = tuple(lines_of(items, kept_in, rules))
    last = first + len(lines) - 1
    return Batch(source=source, path="", offset=0, line=last, lines=taken, tracked=False, tier="direct")


def counted(counts: "Counter[str]") -> tuple[dict[str, int], int]:
    """(counts by reason, number of answers among them)."""
    return {what: counts[what] for what in sorted(counts) if what != UNLEARNED}, counts[UNLEARNED]


def lines_of(
    items: Iterable[Item], quarantine: Quarantine, rules: Rules, counts: "Counter[str] | None" = None
) -> list[Line]:
    """Convert items to lines of a batch, one per answer, after quarantining malformed ones. Answers that give no
    example are added to `counts`, by reason and as `UNLEARNED`; without `counts` the sender waits for the outcome, and
    a row that is rated bad is a bad line, too. Evidence is attached to the answer that it concerns, or gets a line of
    its own if the item holds no example of that answer. Raises OSError."""
    lines = []
    for item in items:
        if isinstance(item, Bad):
            lines.append(_bad_line(item, quarantine.keep(item.data)))
            continue
        found = gathered(item, rules) if not isinstance(item, Remark) else Gathered()
        if isinstance(item, Found):
            for reason in found.unlearned:
                if reason == RATED_BAD:
                    if counts is not None:
                        counts[f"dropped: {reason}"] += 1
                        continue
                    reason = f'the row is no example: it is {reason}; [preferences] ratings = "kto" learns it'
                bad = Bad(item.line, reason, item.record.canonical)
                lines.append(_bad_line(bad, quarantine.keep(bad.data)))
            lines += [_line(item.line, learned) for learned in found.learned]
            continue
        if counts is not None:
            counts.update({f"dropped: {reason}": count for reason, count in found.unlearned.items()})
            if found.found and found.unlearned:
                counts[UNLEARNED] += sum(found.unlearned.values())
        lines += _lines_of_session(item, found, rules)
    return lines


def _lines_of_session(item: Moment | Remark, found: Gathered, rules: Rules) -> Iterable[Line]:
    shown: dict[str, list[Evidence]] = {}
    for one in evidence_of(item, rules):
        shown.setdefault(one.answer, []).append(one)
    for learned in found.learned:
        evidence = shown.pop(learned.taught.responses[0].key, ())
        learned = _spoken_against(learned, evidence, rules)
        line = _line(learned.line or item.line, learned, tuple(evidence), isinstance(item, Moment))
        if learned is found.learned[-1] and isinstance(item, Moment):
            line = msgspec.structs.replace(line, instead_of=instead_of(item, learned.place, rules))
        yield line
    if rest := tuple(one for several in shown.values() for one in several):
        yield Line(number=item.line, evidence=rest)
    if followed := unscored(item, rules):
        yield Line(number=item.line, unscored=followed)


def _spoken_against(learned: Learned, evidence: Sequence[Evidence], rules: Rules) -> Learned:
    """The answer as a bad one, if evidence speaks against it and ratings are learned."""
    found = any(speaks_against(one.polarity, one.strength) for one in evidence)
    if rules.preferences.ratings != "kto" or not found or learned.record.kind == "compared":
        return learned
    opinion = Opinion(good=False, rated=True)
    made = next(iter(compared(learned.record, opinion, rules.preferences)), None)
    return learned if made is None else learned._replace(record=made, rejected=True)


def _line(number: int, learned: Learned, evidence: tuple[Evidence, ...] = (), of_log: bool = False) -> Line:
    record, (responses, text) = learned.record, learned.taught
    responses = () if learned.rejected else responses  # other logs may hold a better answer by the same key
    return Line(
        number=number, example=record.id, record=record.canonical, tier=record.tier,
        origin=learned.origin, removed=learned.removed, responses=responses, signature=signature(text),
        topic=topic(text), evidence=evidence, of_log=of_log, decided=record.kind == "compared",
        question=asked_in(record.canonical) if record.kind == "messages" else "",
    )  # fmt: skip


def _bad_line(item: Bad, kept: QuarantinedFile) -> Line:
    return Line(number=item.line, reason=item.reason, bytes=kept.bytes, sha256=kept.sha256, kept=kept.path)
