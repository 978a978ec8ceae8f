"""Reads the seeds of a pattern from their places: files, directories, views of the journal. Blocking.

Bounded in files, bytes and seeds. Unreadable files are skipped and counted with the reason: notes come and go during a
dream. Links in a directory are not followed.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from apollod.adapters.journal.journal_reader import literal, query
from apollod.curation.dreaming.seeds import Seed, seed_of, seeds_of_lines, seeds_of_text, text_of_record
from apollod.curation.redaction import redact, redact_text
from apollod.errors import ApolloError, SeedsUnreadable
from apollod.explain import reason

SEEDS_MAX = 500
FILE_BYTES_MAX = 1 << 20
ALL_BYTES_MAX = 16 << 20
FILES_MAX = 2_000
"""per directory, with all its subdirectories"""
DEPTH_MAX = 20
VIEW_ROWS = 200
"""newest rows of a view"""
VIEW_S = 5.0
_VIEW = "view:"


class Seeds(NamedTuple):
    """Seeds found. `skipped`: number of skipped entries, by reason."""

    found: tuple[Seed, ...]
    skipped: Mapping[str, int]


def place_problem(place: str) -> str:
    """Reason why a place cannot hold seeds, whatever it contains; empty if it can. Files may come later."""
    if place.startswith(_VIEW) and place.removeprefix(_VIEW) not in _VIEWS:
        return f"seeds: there is no {place}, but {', '.join(_VIEW + name for name in _VIEWS)}"
    return "" if place.strip() and "\0" not in place else f"seeds: {place!r} is no path"


def read_seeds(places: Sequence[str], journal: Path) -> Seeds:
    """Return the seeds of all places, each once. If there are too many, each place gives an equal share. Raises
    SeedsUnreadable where there are none because nothing could be read; a view without rows is not a failure."""
    skipped = Counter[str]()
    left = _Left()
    by_place = [_of_place(place, journal, skipped, left) for place in places]
    in_turn = (seed for seeds in zip_longest(*by_place) for seed in seeds if seed is not None)
    different = {seed.id: seed for seed in in_turn}
    if len(different) > SEEDS_MAX:
        skipped[f"there are more than {SEEDS_MAX} seeds"] += len(different) - SEEDS_MAX
    found = tuple(islice(different.values(), SEEDS_MAX))
    if skipped and not found:
        why = ", ".join(f"{times} times: {what}" if times > 1 else what for what, times in skipped.most_common(3))
        raise SeedsUnreadable(f"there is no seed in {', '.join(places)} ({why})")
    return Seeds(found, skipped)


class _Left:
    """Remaining limits for reading."""

    def __init__(self) -> None:
        self.bytes = ALL_BYTES_MAX


def _of_place(place: str, journal: Path, skipped: Counter[str], left: _Left) -> list[Seed]:
    if place.startswith(_VIEW):
        try:
            return list(_of_view(place, journal))
        except ApolloError as error:
            skipped[f"{place} cannot be read: {error}"] += 1
            return []
    path = os.path.abspath(os.path.expanduser(place))
    if os.path.isdir(path):
        return list(islice(_of_directory(path, skipped, left), SEEDS_MAX + 1))
    return list(islice(_of_file(path, path, None, skipped, left), SEEDS_MAX + 1))


def _of_directory(path: str, skipped: Counter[str], left: _Left) -> Iterator[Seed]:
    """Yield seeds of all files below it, sorted by name. Opened by descriptors of directories, so that a directory
    replaced by a link meanwhile is not followed."""

    def failed(error: OSError) -> None:
        skipped[f"a directory cannot be read: {reason(error)}"] += 1

    files = 0
    for directory, below, names, descriptor in os.fwalk(path, onerror=failed):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if below and directory.count(os.sep) - path.count(os.sep) >= DEPTH_MAX:
            skipped[f"a directory is more than {DEPTH_MAX} levels deep"] += 1
            below.clear()
        for name in sorted(name for name in names if not name.startswith(".")):
            if files == FILES_MAX:
                skipped[f"a directory holds more than {FILES_MAX} files"] += 1
                return
            files += 1
            yield from _of_file(os.path.join(directory, name), name, descriptor, skipped, left)


def _of_file(path: str, name: str, directory: int | None, skipped: Counter[str], left: _Left) -> Iterator[Seed]:
    """`directory`: descriptor of its directory; None: the user named the file, so a link is followed."""
    shown = path.encode(errors="replace").decode()
    try:
        data, at_ns = _data(name, directory, left)
    except OSError as error:
        skipped["a file is a link" if error.errno == errno.ELOOP else f"a file cannot be read: {reason(error)}"] += 1
        return
    except _Refused as error:
        skipped[str(error)] += 1
        return
    clean = redact(data)[0]
    if path.endswith(".jsonl"):
        for one in seeds_of_lines(clean, shown, at_ns):
            if isinstance(one, str):
                skipped[one] += 1
            else:
                yield one
        return
    try:
        text = clean.decode("utf-8-sig")
    except UnicodeDecodeError:
        skipped["a file is no UTF-8 text"] += 1
        return
    yield from seeds_of_text(text, shown, at_ns)


class _Refused(Exception):
    """A file that is not text, or too long."""


def _data(name: str, directory: int | None, left: _Left) -> tuple[bytes, int]:
    """Return (content of a file, time of its last write in ns since 1970). Raises OSError and _Refused."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if directory is None else os.O_NOFOLLOW)
    with open(os.open(name, flags, dir_fd=directory), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise _Refused("something is no file")
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise _Refused(f"a file is larger than {FILE_BYTES_MAX >> 20} MiB")
    if not data.strip():
        raise _Refused("a file is empty")
    if b"\0" in data:
        raise _Refused("a file is no text")
    if len(data) > left.bytes:
        raise _Refused(f"all files together are larger than {ALL_BYTES_MAX >> 20} MiB")
    left.bytes -= len(data)
    return data, about.st_mtime_ns


# --- views of the journal --------------------------------------------------------------------------------------------


_Row = tuple[int, int, str]
"""number of an event, when it was recorded (nanoseconds since 1970), and its text"""


def _of_view(place: str, journal: Path) -> Iterator[Seed]:
    known = _VIEWS.get(place.removeprefix(_VIEW))
    if known is None:
        raise SeedsUnreadable("there is no such view")
    for seq, at_ns, text in known(journal):
        if seed := seed_of(redact_text(text), f"{place}:{seq}", at_ns):
            yield seed


def _newest(journal: Path, columns: str, where: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT seq, at_ns, {columns} FROM events WHERE {where} ORDER BY seq DESC LIMIT {VIEW_ROWS}"
    return query(journal, sql, VIEW_ROWS, VIEW_S).rows


def _signals(journal: Path) -> Iterator[_Row]:
    """Complaints and the like that users wrote about an answer, with that answer where an example learns it."""
    rows = _newest(journal, "body ->> '$.quote', body ->> '$.example'", "kind = 'signal.flagged'")
    ids = ", ".join(sorted({literal(example) for *_, example in rows if example}))
    sql = (
        "SELECT id, body ->> '$.record' FROM known_examples JOIN events USING (seq) "
        f"WHERE id IN ({ids}) AND kind = 'example.accepted'"
    )
    records = dict(query(journal, sql, VIEW_ROWS, VIEW_S).rows) if ids else {}
    for seq, at_ns, quote, example in rows:
        answer = _answer(records.get(example, ""))
        said = [*([f"assistant: {answer}"] if answer else []), *([f"user: {quote}"] if quote else [])]
        yield seq, at_ns, "\n".join(said)


def _feedback(journal: Path) -> Iterator[_Row]:
    columns = "body ->> '$.answer', body ->> '$.comment', body ->> '$.correction'"
    for seq, at_ns, *texts in _newest(journal, columns, "kind = 'feedback.given'"):
        parts = zip(("assistant", "what somebody said of it", "what should have been said"), texts, strict=True)
        yield seq, at_ns, "\n".join(f"{who}: {text}" for who, text in parts if text)


def _verdicts(journal: Path) -> Iterator[_Row]:
    """Verdicts about examples. Those about dreams are left out: a dream may be a test, which no dream may see."""
    where = "kind = 'verdict.given' AND body ->> '$.verdict' = 'bad' AND coalesce(body ->> '$.example', '') <> ''"
    for seq, at_ns, quote, why in _newest(journal, "body ->> '$.quote', body ->> '$.reason'", where):
        yield seq, at_ns, f"assistant: {quote}\nwhat is wrong with it: {why}"


def _examples(journal: Path) -> Iterator[_Row]:
    """Accepted examples except dreamt ones: dreams of dreams become poorer."""
    where = "kind = 'example.accepted' AND body ->> '$.source' NOT LIKE 'dream:%'"
    for seq, at_ns, record in _newest(journal, "body ->> '$.record'", where):
        yield seq, at_ns, text_of_record(msgspec.json.decode(record))


def _answer(record: str) -> str:
    """The last answer of the record that is learned."""
    value = msgspec.json.decode(record) if record else {}
    turns = [one for one in value.get("messages", ()) if one["role"] == "assistant" and one.get("weight") != 0]
    return str(turns[-1].get("content") or "") if turns else str(value.get("completion", ""))


_VIEWS: Mapping[str, Callable[[Path], Iterator[_Row]]] = {
    "signals": _signals,
    "feedback": _feedback,
    "verdicts": _verdicts,
    "examples": _examples,
}
