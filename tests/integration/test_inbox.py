"""The inbox on a real file system: each complete line exactly once, whatever happens to the files."""

import gzip
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.toy_format import ToyConversations

from apollod.adapters.sources import record_stream, source_files
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.record_stream import CHUNK_BYTES, batch_of_lines
from apollod.adapters.sources.source_files import Terms
from apollod.adapters.sources.watched_places import Inbox
from apollod.core import events as ev
from apollod.core.facts.intake.state import Position
from apollod.core.fold import fold
from apollod.core.inputs import Batch
from apollod.core.rules.intake.policy import intake_events
from apollod.core.state import State
from apollod.curation.formats.table import READERS, ReaderTable
from apollod.errors import SourceRefused

BLANK = (b"", b"\n", b" \r\n")


def text_line(name: object) -> bytes:
    return json.dumps({"text": f"text {name}"}).encode() + b"\n"


class Daemon:
    """The part of the daemon that matters here: events, and what a fold knows of positions and examples."""

    def __init__(
        self, root: Path, line_max: int = record_stream.LINE_BYTES_MAX, formats: ReaderTable | None = None
    ) -> None:
        self.dir, self.quarantine = root / "inbox", root / "quarantine"
        self.dir.mkdir(exist_ok=True)
        self.now = 0.0
        self.line_max = line_max
        self.formats = formats
        self.events: list[ev.Event] = []
        self.state = State()
        self.known: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """A new process: only what was recorded is left."""
        if hasattr(self, "inbox"):
            self.inbox.close()
        self.inbox = Inbox(
            self.dir, self.quarantine, Terms(record_bytes=self.line_max), clock=lambda: self.now, formats=self.formats
        )

    def record(self, batch: Batch) -> None:
        new = intake_events(batch, self.known)
        self.events += new
        for event in new:
            fold(self.state, ev.Recorded(self.state.seq + 1, 0, event))
            if isinstance(event, ev.ExampleAccepted):
                self.known.add(event.example)

    def take(self) -> list[ev.Event]:
        """Everything that can be taken now; returns the new events."""
        begin = len(self.events)
        for path in self.inbox.scan():
            while (batch := self.inbox.read_batch(path, self.state.intake.sources)) is not None:
                self.record(batch)
        return self.events[begin:]

    def texts(self) -> list[str]:
        """What was accepted, in order, without its frame."""
        records = [bytes(e.record) for e in self.events if isinstance(e, ev.ExampleAccepted)]
        return [json.loads(r)["text"].removeprefix("text ") for r in records]

    def count(self, kind: str) -> int:
        return sum(e.kind == kind for e in self.events)

    def bad(self) -> list[ev.SourceQuarantined]:
        return [e for e in self.events if isinstance(e, ev.SourceQuarantined)]

    def write(self, name: str, *lines: bytes) -> Path:
        path = self.dir / name
        path.write_bytes(b"".join(lines))
        return path

    def append(self, name: str, *lines: bytes) -> None:
        with (self.dir / name).open("ab") as file:
            file.write(b"".join(lines))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    yield made
    made.inbox.close()


# --- plain files --------------------------------------------------------------------------------------------------


def test_a_file_renamed_in_is_taken_once(daemon: Daemon) -> None:
    daemon.write("a.tmp", text_line(1), text_line(2)).rename(daemon.dir / "a.jsonl")
    assert [e.kind for e in daemon.take()] == [
        "source.discovered",
        "example.accepted",
        "example.accepted",
        "source.consumed",
    ]
    assert daemon.take() == []
    daemon.restart()
    assert daemon.take() == []
    assert daemon.texts() == ["1", "2"]


def test_a_torn_last_line_waits_for_its_newline(daemon: Daemon) -> None:
    whole = text_line(2)
    daemon.write("a.jsonl", text_line(1), whole[:9])
    daemon.take()
    assert daemon.texts() == ["1"]
    daemon.append("a.jsonl", whole[9:-1])
    assert daemon.take() == []
    daemon.append("a.jsonl", b"\n")
    daemon.take()
    assert daemon.texts() == ["1", "2"]
    assert daemon.bad() == []


def test_a_file_without_a_complete_line_has_no_identity_yet(daemon: Daemon) -> None:
    line = text_line(1)
    daemon.write("a.jsonl", line[:5])
    assert daemon.take() == []
    daemon.append("a.jsonl", line[5:])
    daemon.take()
    assert daemon.texts() == ["1"]
    assert daemon.count("source.discovered") == 1


def test_line_numbers_count_blank_lines_and_a_byte_order_mark_is_skipped(daemon: Daemon) -> None:
    daemon.write(
        "a.jsonl", b"\xef\xbb\xbf", text_line(1), b"\n", b"  \r\n", text_line(4), b"\xef\xbb\xbf" + text_line(5)
    )
    daemon.take()
    assert daemon.texts() == ["1", "4"]
    assert [e.line for e in daemon.events if isinstance(e, ev.ExampleAccepted)] == [1, 4]
    assert [(e.line, "BOM" in e.reason) for e in daemon.bad()] == [(5, True)]


def test_long_files_come_in_batches(daemon: Daemon) -> None:
    daemon.write("a.jsonl", *(text_line(n) for n in range(600)))
    batch = daemon.inbox.read_batch(daemon.inbox.scan()[0], {})
    assert batch is not None and len(batch.lines) == source_files.BATCH_LINES_MAX
    daemon.take()
    assert daemon.texts() == [str(n) for n in range(600)]
    assert daemon.count("source.consumed") == 3


def test_records_that_give_no_line_come_in_batches_too(daemon: Daemon) -> None:
    """Four kilobytes unfold to millions of blank lines, and other files of the inbox wait for a batch."""
    blank = 300_000
    daemon.write("a.jsonl.gz", gzip.compress(b"\n" * blank + text_line(1)))
    daemon.take()
    ends = [e.line for e in daemon.events if isinstance(e, ev.SourceConsumed)]
    most = source_files.BATCH_RECORDS_MAX + CHUNK_BYTES
    assert ends[-1] == blank + 1 and max(b - a for a, b in pairwise([0, *ends])) <= most
    assert daemon.texts() == ["1"]


def test_a_batch_that_was_not_recorded_comes_again(daemon: Daemon) -> None:
    daemon.write("a.jsonl", text_line(1))
    (path,) = daemon.inbox.scan()
    first = daemon.inbox.read_batch(path, {})
    assert first is not None and daemon.inbox.read_batch(path, {}) == first


def test_a_renamed_file_is_the_same_source(daemon: Daemon) -> None:
    path = daemon.write("b.jsonl", text_line(1))
    daemon.take()
    path.rename(daemon.dir / "a.jsonl")
    daemon.append("a.jsonl", text_line(2))
    daemon.take()
    (daemon.dir / "a.jsonl").rename(daemon.dir / "c.jsonl")
    daemon.restart()  # renamed while the daemon was down
    daemon.append("c.jsonl", text_line(3))
    daemon.take()
    assert daemon.texts() == ["1", "2", "3"]
    assert (daemon.count("source.discovered"), daemon.count("example.duplicate")) == (1, 0)


def test_the_furthest_position_of_a_file_counts(daemon: Daemon) -> None:
    for number, name in enumerate(["a.jsonl", "b.jsonl", "a.jsonl"]):
        for path in daemon.dir.iterdir():
            path.rename(daemon.dir / name)
        daemon.append(name, text_line(number))
        daemon.take()
    (daemon.dir / "a.jsonl").rename(daemon.dir / "c.jsonl")
    daemon.restart()
    assert daemon.take() == []
    assert daemon.texts() == ["0", "1", "2"]


def test_rotation_by_rename_and_create(daemon: Daemon) -> None:
    path = daemon.write("a.jsonl", text_line(1))
    daemon.take()
    daemon.append("a.jsonl", text_line(2))
    path.rename(daemon.dir / "a.1.jsonl")
    daemon.write("a.jsonl", text_line(3))
    daemon.take()
    assert sorted(daemon.texts()) == ["1", "2", "3"]
    assert daemon.count("example.duplicate") == 0


def test_a_rotated_file_is_not_read_again_after_a_restart(daemon: Daemon) -> None:
    path = daemon.write("log.jsonl", text_line(1), b"bad\n", text_line(2))
    daemon.take()
    path.rename(daemon.dir / "log.1.jsonl")
    daemon.write("log.jsonl", text_line(3))
    daemon.take()
    daemon.restart()
    assert daemon.take() == []
    (daemon.dir / "log.1.jsonl").rename(daemon.dir / "log.2.jsonl")
    (daemon.dir / "log.jsonl").rename(daemon.dir / "log.1.jsonl")
    daemon.write("log.jsonl", text_line(4))
    daemon.append("log.2.jsonl", text_line(5))  # by a writer that still has it open
    daemon.take()
    daemon.restart()
    assert daemon.take() == []
    assert sorted(daemon.texts()) == ["1", "2", "3", "4", "5"]
    assert (daemon.count("source.discovered"), len(daemon.bad())) == (3, 1)


@pytest.mark.parametrize("first", [1, "another"], ids=["same-beginning", "other-beginning"])
def test_rotation_by_copy_and_truncate(daemon: Daemon, first: object) -> None:
    path = daemon.write("a.jsonl", text_line(1), text_line(2), text_line(3))
    daemon.take()
    os.truncate(path, 0)
    assert daemon.take() == []
    daemon.append("a.jsonl", text_line(first), text_line(4))
    daemon.take()
    daemon.restart()
    daemon.append("a.jsonl", text_line(5))
    daemon.take()
    assert daemon.texts() == ["1", "2", "3", *(["another"] if first == "another" else []), "4", "5"]
    assert daemon.count("source.discovered") == 2
    assert daemon.count("example.duplicate") == (1 if first == 1 else 0)
    again = [e for e in daemon.events if isinstance(e, ev.SourceDiscovered)][1]
    assert bool(again.replaces) is (first == 1)


def test_truncated_again_and_again(daemon: Daemon) -> None:
    """Each time with the same first line and the same size, so that only the bytes before the position tell."""
    path = daemon.write("a.jsonl", text_line("first"), text_line(10))
    for generation in range(11, 20):
        daemon.take()
        os.truncate(path, 0)
        daemon.append("a.jsonl", text_line("first"), text_line(generation))
    daemon.take()
    daemon.restart()
    daemon.append("a.jsonl", text_line(20))
    daemon.take()
    assert daemon.texts() == ["first", *(str(n) for n in range(10, 21))]
    assert daemon.count("source.discovered") == 10


@pytest.mark.parametrize("restart", [False, True])
def test_rewritten_on_the_same_line_grid(daemon: Daemon, restart: bool) -> None:
    """The first line is the same, and where reading would go on a line ends in the new text, too."""
    daemon.write("a.jsonl", text_line("header"), *(text_line(n) for n in range(10, 15)))
    daemon.take()
    if restart:
        daemon.restart()
    daemon.write("a.jsonl", text_line("header"), *(text_line(n) for n in range(20, 27)))
    daemon.take()
    assert daemon.texts() == ["header", *(str(n) for n in (*range(10, 15), *range(20, 27)))]
    assert daemon.count("source.discovered") == 2
    daemon.restart()
    assert daemon.take() == []


def test_a_journal_of_before_says_nothing_about_the_text_before_a_position(daemon: Daemon) -> None:
    daemon.write("a.jsonl", text_line("header"), text_line(10))
    daemon.take()
    for file, position in daemon.state.intake.sources.items():
        daemon.state.intake.sources[file] = Position(position.source, position.offset, position.line)
    daemon.restart()
    daemon.append("a.jsonl", text_line(11))
    daemon.take()
    assert daemon.texts() == ["header", "10", "11"]
    assert daemon.count("source.discovered") == 1


def test_rewritten_in_place_with_another_line_grid(daemon: Daemon) -> None:
    daemon.write("a.jsonl", text_line(1), text_line(2))
    daemon.take()
    daemon.write("a.jsonl", text_line(1), text_line("a longer second line"), text_line(3))  # the same inode
    daemon.take()
    assert daemon.texts() == ["1", "2", "a longer second line", "3"]


def test_the_same_file_twice_gives_duplicates(daemon: Daemon) -> None:
    daemon.write("a.jsonl", text_line(1), text_line(2), text_line(1))
    daemon.write("b.jsonl", text_line(1), text_line(2), text_line(1))
    os.link(daemon.dir / "a.jsonl", daemon.dir / "c.jsonl")  # the same file under a second name is not even a duplicate
    daemon.take()
    assert daemon.texts() == ["1", "2"]
    assert (daemon.count("example.duplicate"), daemon.count("source.discovered")) == (4, 2)


def test_a_file_that_vanishes_is_no_error(daemon: Daemon) -> None:
    path = daemon.write("a.jsonl", *(text_line(n) for n in range(300)))
    (listed,) = daemon.inbox.scan()
    batch = daemon.inbox.read_batch(listed, {})
    assert batch is not None
    daemon.record(batch)
    path.unlink()
    assert daemon.inbox.read_batch(listed, daemon.state.intake.sources) is None
    assert daemon.take() == []
    daemon.dir.rmdir()
    assert daemon.inbox.scan() == []


def test_only_regular_visible_files_with_known_suffixes(daemon: Daemon, tmp_path: Path) -> None:
    outside = tmp_path / "secret.jsonl"
    outside.write_bytes(text_line("secret"))
    (daemon.dir / "link.jsonl").symlink_to(outside)
    os.mkfifo(daemon.dir / "pipe.jsonl")
    (daemon.dir / "dir.jsonl").mkdir()
    for name in (".hidden.jsonl", "a.json", "a.jsonl.tmp", "notes.txt"):
        daemon.write(name, text_line(name))
    daemon.write("a.jsonl", text_line(1))
    assert daemon.inbox.scan() == [str(daemon.dir / "a.jsonl")]
    assert daemon.inbox.read_batch(str(daemon.dir / "pipe.jsonl"), {}) is None
    assert daemon.inbox.read_batch(str(daemon.dir / "dir.jsonl"), {}) is None
    with pytest.raises(OSError, match="symbolic links"):
        daemon.inbox.read_batch(str(daemon.dir / "link.jsonl"), {})


def test_a_name_that_is_not_utf8(daemon: Daemon) -> None:
    with open(os.fsencode(daemon.dir) + b"/caf\xe9.jsonl", "wb") as file:
        file.write(text_line(1))
    daemon.take()
    assert daemon.texts() == ["1"]
    (path,) = (e.path for e in daemon.events if isinstance(e, ev.SourceConsumed))
    json.dumps(path).encode()
    assert daemon.take() == []


# --- bad lines ----------------------------------------------------------------------------------------------------


BAD = [
    (b"this is not JSON\n", "not JSON"),
    (b'{"text": "\xff\xfe"}\n', "not UTF-8"),
    (b'{"question": "x"}\n', "no known shape"),
    (b'{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":""}]}\n', "empty assistant turn"),
    (b'{"messages":[{"role":"assistant","content":"x","weight":0}]}\n', "no target token"),
    (b"\x00\n", "not JSON"),
    (b'{"text": NaN}\n', "NaN is not JSON"),
    (b"[" * 50_000 + b"\n", "deeper"),
]


def test_each_bad_line_is_kept_and_the_rest_goes_on(daemon: Daemon) -> None:
    good = [text_line(n) for n in range(len(BAD) + 1)]
    mixed = [piece for pair in zip(good, [raw for raw, _ in BAD], strict=False) for piece in pair] + good[-1:]
    daemon.write("a.jsonl", *mixed)
    daemon.take()
    assert daemon.texts() == [str(n) for n in range(len(BAD) + 1)]
    for number, (event, (raw, reason)) in enumerate(zip(daemon.bad(), BAD, strict=True)):
        assert reason in event.reason and "; " in event.reason, "why, and what to do"
        assert (event.line, event.bytes, event.sha256) == (2 * number + 2, len(raw), sha256(raw).hexdigest())
        assert Path(event.kept).read_bytes() == raw
        assert Path(event.kept).stat().st_mode & 0o777 == 0o600
    assert daemon.quarantine.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("size", [1000, 1001, 1024, 100_000, 1_000_000])
def test_lines_over_the_limit_are_kept_whole(tmp_path: Path, size: int) -> None:
    daemon = Daemon(tmp_path, line_max=1000)
    long = json.dumps({"text": "x" * (size - 13)}).encode() + b"\n"
    assert len(long) == size
    daemon.write("a.jsonl", text_line(1), long, text_line(3))
    daemon.take()
    if size <= 1000:
        assert len(daemon.texts()) == 3
    else:
        assert daemon.texts() == ["1", "3"]
        (event,) = daemon.bad()
        assert "longer than 1000 bytes" in event.reason
        assert (event.bytes, Path(event.kept).read_bytes()) == (size, long)
    assert not list(daemon.quarantine.glob(".*"))


def test_a_long_line_waits_for_its_newline_too(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, line_max=1000)
    daemon.write("a.jsonl", text_line(1), b"x" * 300_000)
    daemon.take()
    assert daemon.bad() == [] and not list(daemon.quarantine.iterdir())
    daemon.append("a.jsonl", b"x\n", text_line(2))
    daemon.take()
    assert [e.bytes for e in daemon.bad()] == [300_002]
    assert daemon.texts() == ["1", "2"]


def test_a_line_without_an_end_is_searched_once_and_never_written(tmp_path: Path) -> None:
    def bytes_read() -> int:
        return int(Path("/proc/thread-self/io").read_text().split()[1])

    daemon = Daemon(tmp_path, line_max=1000)
    path = daemon.write("a.jsonl", text_line(1))
    daemon.take()
    size = 64 << 20
    os.truncate(path, size)  # nothing but zeros
    before = daemon.quarantine.stat().st_mtime_ns
    assert daemon.take() == []
    for _ in range(3):
        daemon.append("a.jsonl", b"x")
        begin = bytes_read()
        assert daemon.take() == []
        assert bytes_read() - begin < 1 << 20
    assert daemon.quarantine.stat().st_mtime_ns == before
    daemon.append("a.jsonl", b"\n", text_line(2))
    daemon.take()
    assert [e.bytes for e in daemon.bad()] == [size - len(text_line(1)) + 4]
    assert daemon.texts() == ["1", "2"]


def test_a_file_whose_space_was_reserved_is_taken_as_it_is_filled(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, line_max=1000)
    path = daemon.write("a.jsonl", text_line(1))
    os.truncate(path, 100_000)
    daemon.take()
    with path.open("r+b") as file:
        for number in (2, 3):
            file.seek(len(text_line(1)) * (number - 1))
            file.write(text_line(number))
            file.flush()
            daemon.take()
            assert daemon.texts()[-1] == str(number)
        file.truncate(len(text_line(1)) * 3)
    assert daemon.take() == []


MEMORY = """
import re, sys
from pathlib import Path
from apollod.adapters.sources.watched_places import Inbox
from apollod.core.facts.intake.state import Position
from apollod.curation.redaction import redact

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

inbox = Inbox(Path(sys.argv[1]), Path(sys.argv[2]))
redact(b"x" * 65536)
Path("/proc/self/clear_refs").write_text("5")  # the peak is that of whoever started this, else
before = peak()
one = inbox.read_batch(inbox.scan()[0], {})
two = inbox.read_batch(inbox.scan()[0], {one.source: Position(one.source, one.offset, one.line)})
print(peak() - before, one.lines[0].bytes, one.lines[0].reason != "", two.lines[0].example != "")
"""


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_50_mb_line_does_not_fill_the_memory(daemon: Daemon, suffix: str) -> None:
    size = 50 << 20
    content = b'{"text":"' + b"x" * size + b'"}\n' + text_line(2)
    pack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": lambda data: gzip.compress(data, 1),
        ".zst": zstandard.ZstdCompressor().compress,
    }
    daemon.write(f"a.jsonl{suffix}", pack[suffix](content))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(daemon.dir), str(daemon.quarantine)],
        capture_output=True,
        text=True,
        check=True,
    )
    grown_kib, length, refused, next_taken = done.stdout.split()
    assert (int(length), refused, next_taken) == (size + 12, "True", "True")
    assert int(grown_kib) < 16 << 10


def test_what_a_crash_left_half_written_is_removed(daemon: Daemon) -> None:
    keeping = Quarantine(daemon.quarantine).begin()
    keeping.write(b"half")
    assert len(list(daemon.quarantine.iterdir())) == 1
    daemon.restart()
    assert list(daemon.quarantine.iterdir()) == []


def test_an_unwritable_quarantine_takes_nothing(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    daemon.write("a.jsonl.gz", gzip.compress(text_line(1) + b"bad\n" + text_line(3)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                daemon.take()
    assert daemon.events == []
    daemon.take()
    assert daemon.texts() == ["1", "3"]
    assert len(daemon.bad()) == 1


def test_the_same_bytes_are_made_durable_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of a hundred thousand bad records that are the same would take a minute."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd, real=os.fsync: (synced.append(fd), real(fd)))
    quarantine = Quarantine(tmp_path)
    first = quarantine.keep(b"{}")
    once = len(synced)
    assert once and [quarantine.keep(b"{}") for _ in range(3)] == [first] * 3
    assert len(synced) == once and Path(first.path).read_bytes() == b"{}"


def test_what_a_full_disk_did_not_take_is_not_left_there(tmp_path: Path) -> None:
    """Else it would stay full. A limit on the size of files stands for the disk."""
    quarantine, before = Quarantine(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        for size in (5_000, 500_000):  # in the buffer of the file until it is flushed, and written at once
            with pytest.raises(OSError, match="too large"):
                quarantine.keep(b"x" * size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    assert Path(quarantine.keep(b"x" * 5_000).path).stat().st_size == 5_000


def test_lines_from_a_socket(daemon: Daemon) -> None:
    lines = [text_line(1), b"", b"bad", text_line(1).rstrip()]
    daemon.record(batch_of_lines(lines, "ctl:x.jsonl", daemon.quarantine))
    assert [e.kind for e in daemon.events] == ["example.accepted", "source.quarantined", "example.duplicate"]
    assert daemon.bad()[0].line == 3
    assert Path(daemon.bad()[0].kept).read_bytes() == b"bad"


def test_a_byte_order_mark_before_lines_from_a_socket(daemon: Daemon) -> None:
    lines = [b"\xef\xbb\xbf" + text_line(number) for number in (1, 2)]
    daemon.record(batch_of_lines(lines, "ctl:x.jsonl", daemon.quarantine))
    daemon.record(batch_of_lines([], "ctl:empty.jsonl", daemon.quarantine))
    assert daemon.texts() == ["1"]
    assert [(e.line, "BOM" in e.reason) for e in daemon.bad()] == [(2, True)], "as in a file"


# --- compressed files ---------------------------------------------------------------------------------------------


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKED = [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zst)]


@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_compressed_files_are_taken_in_batches(daemon: Daemon, name: str, pack: Callable[[bytes], bytes]) -> None:
    lines = [text_line(n) for n in range(700)]
    # Two members or frames, as `cat` makes them; the last line has no newline, but no more will come.
    daemon.write(name, pack(b"".join(lines[:300])), pack(b"".join(lines[300:]).rstrip()))
    (path,) = daemon.inbox.scan()
    batch = daemon.inbox.read_batch(path, {})
    assert batch is not None
    daemon.record(batch)
    daemon.restart()  # goes on at the offset, from the beginning of the file
    daemon.take()
    assert daemon.texts() == [str(n) for n in range(700)]
    assert daemon.state.intake.sources[batch.source] == Position(batch.source, len(b"".join(lines)) - 1, 700)
    daemon.restart()
    assert daemon.take() == []


@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_a_file_on_its_way_is_waited_for(daemon: Daemon, name: str, pack: Callable[[bytes], bytes]) -> None:
    data = pack(b"".join(text_line(n) for n in range(50)))
    path = daemon.write(name, b"")
    daemon.now = time.time()
    for end in (0, 3, 20, len(data) - 9):
        path.write_bytes(data[:end])
        assert daemon.take() == []
    path.write_bytes(data)
    daemon.take()
    assert len(daemon.texts()) == 50
    assert daemon.bad() == []


@pytest.mark.parametrize(("name", "pack"), PACKED)
@pytest.mark.parametrize("damage", ["cut off", "flipped", "not packed", "garbage behind"])
def test_a_damaged_file_is_kept_as_a_whole(
    daemon: Daemon, name: str, pack: Callable[[bytes], bytes], damage: str
) -> None:
    plain = b"".join(text_line(n) for n in range(500))
    data = pack(plain)
    bad = {
        "cut off": data[:-5],
        "flipped": data[:4] + bytes([data[4] ^ 0xFF]) + data[5:40] + b"\x00\x01\x02" + data[43:],
        "not packed": plain,
        "garbage behind": data + b"garbage",
    }[damage]
    daemon.write(name, bad)
    daemon.now = time.time()
    assert daemon.take() == []
    daemon.now += source_files.SETTLE_S + 1
    daemon.take()
    (event,) = daemon.bad()
    assert (event.line, event.bytes) == (0, len(bad))
    assert "damaged" in event.reason
    assert Path(event.kept).read_bytes() == bad
    daemon.restart()
    assert daemon.take() == []
    daemon.write(name, data)  # repaired
    daemon.take()
    assert len(daemon.texts()) == 500


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_a_file_damaged_after_its_first_batch_is_refused_once(
    daemon: Daemon, name: str, pack: Callable[[bytes], bytes], restart: bool
) -> None:
    path = daemon.write(name, pack(b"".join(text_line(random.Random(n).randbytes(99).hex()) for n in range(2000))))
    (listed,) = daemon.inbox.scan()
    batch = daemon.inbox.read_batch(listed, {})
    assert batch is not None
    daemon.record(batch)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3].ljust(len(data), b"\0"))  # as a power cut leaves it
    daemon.now = time.time() + source_files.SETTLE_S + 1
    if restart:
        daemon.restart()
    for _ in range(20):
        batch = daemon.inbox.read_batch(listed, daemon.state.intake.sources)
        if batch is not None:
            daemon.record(batch)
    assert [(e.line, e.bytes) for e in daemon.bad()] == [(0, len(data))]
    daemon.restart()
    assert daemon.take() == []


# --- any order of things ------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lines=st.lists(st.sampled_from(["good", "bad", "blank", "long", "again"]), max_size=30),
    cuts=st.lists(st.integers(0, 4000), max_size=12),
    actions=st.lists(st.sampled_from(["take", "restart", "rename", "nothing", "lose"]), min_size=13, max_size=13),
    chunk=st.integers(1, 300),
)
def test_however_a_file_grows_each_line_is_taken_once(
    lines: list[str], cuts: list[int], actions: list[str], chunk: int
) -> None:
    made = {
        "good": lambda n: text_line(n),
        "bad": lambda n: b"bad %d\n" % n,
        "blank": lambda n: BLANK[1 + n % 2],
        "long": lambda n: b"%d" % n + b"y" * 200 + b"\n",
        "again": lambda n: text_line("again"),
    }
    pieces = [made[kind](number) for number, kind in enumerate(lines)]
    data = b"".join(pieces)
    before, record_stream.CHUNK_BYTES = record_stream.CHUNK_BYTES, chunk
    try:
        with tempfile.TemporaryDirectory() as root:
            daemon = Daemon(Path(root), line_max=100)
            name, begin = "f.jsonl", 0
            (daemon.dir / name).touch()
            for end, action in zip([*sorted(min(c, len(data)) for c in cuts), len(data)], actions, strict=False):
                daemon.append(name, data[begin:end])
                begin = end
                if action == "rename":
                    (daemon.dir / name).rename(daemon.dir / f"{end}.jsonl")
                    name = f"{end}.jsonl"
                elif action == "lose":  # read, and then the daemon dies before it is recorded
                    daemon.inbox.read_batch(str(daemon.dir / name), daemon.state.intake.sources)
                if action in ("restart", "lose"):
                    daemon.restart()
                elif action != "nothing":
                    daemon.take()
            daemon.take()
            expected = [
                str(n) if kind == "good" else "again" for n, kind in enumerate(lines) if kind in ("good", "again")
            ]
            unique = list(dict.fromkeys(expected))
            assert daemon.texts() == unique
            assert daemon.count("example.duplicate") == len(expected) - len(unique)
            assert [e.line - 1 for e in daemon.bad()] == [n for n, kind in enumerate(lines) if kind in ("bad", "long")]
            assert [Path(e.kept).read_bytes() for e in daemon.bad()] == [pieces[e.line - 1] for e in daemon.bad()]
    finally:
        record_stream.CHUNK_BYTES = before


# --- a format that carries something over -------------------------------------------------------------------------


TOY = ReaderTable([ToyConversations(), *READERS])


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_conversation_over_many_lines_survives_restarts(tmp_path: Path, suffix: str) -> None:
    """What a reader has to remember of lines taken before comes back from the journal."""
    daemon = Daemon(tmp_path, formats=TOY)
    lines = [b"> how?\n", b"neither\n", b"< so\n", b"\n", b"> and?\n", b"< so, too\n", b"\n"]
    pack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": lambda data: gzip.compress(data, 1),
        ".zst": zstandard.ZstdCompressor().compress,
    }
    if suffix:
        source_files.BATCH_LINES_MAX, before = 1, source_files.BATCH_LINES_MAX
        try:
            daemon.write(f"a.jsonl{suffix}", pack[suffix](b"".join(lines)))
            for _ in lines:
                daemon.restart()
                for path in daemon.inbox.scan():
                    if (batch := daemon.inbox.read_batch(path, daemon.state.intake.sources)) is not None:
                        daemon.record(batch)
        finally:
            source_files.BATCH_LINES_MAX = before
    else:
        for line in lines:
            daemon.append("a.jsonl", line)
            daemon.take()
            daemon.restart()
    assert daemon.take() == []
    records = [json.loads(bytes(e.record)) for e in daemon.events if isinstance(e, ev.ExampleAccepted)]
    answers = [record["messages"][1]["content"] for record in records]
    assert answers == ["so", "so, too"]
    assert [(e.line, Path(e.kept).read_bytes()) for e in daemon.bad()] == [(2, b"neither")]


def test_a_source_stays_with_its_format(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, formats=TOY)
    daemon.write("a.jsonl", b"> how?\n")
    daemon.take()
    daemon.formats = None  # an earlier apollod
    daemon.restart()
    daemon.append("a.jsonl", b"< so\n\n")
    with pytest.raises(SourceRefused):
        daemon.take()
    daemon.formats = TOY
    daemon.restart()
    daemon.take()
    assert daemon.count("example.accepted") == 1


# --- watching -----------------------------------------------------------------------------------------------------


def test_watch_hints_at_a_new_file_and_at_time(daemon: Daemon) -> None:
    async def main() -> list[float]:
        seen: list[float] = []
        with anyio.fail_after(120):
            async for _ in daemon.inbox.watch(every_s=3.0):
                seen.append(time.monotonic())
                if len(seen) == 2:  # the watch is surely on now
                    daemon.write("a.jsonl", text_line(1))
                if len(seen) == 3:
                    break
        return seen

    start = time.monotonic()
    times = anyio.run(main)
    assert times[0] - start < 2.7
    assert times[1] - times[0] > 2.7
    assert times[2] - times[1] < 2.7, "a hint, not the clock"


def test_watch_goes_on_after_a_name_that_is_not_utf8(daemon: Daemon) -> None:
    """The notification of such a file cannot be read."""
    name = daemon.dir / os.fsdecode(b"x\xff.jsonl")

    async def main() -> list[str]:
        with anyio.fail_after(120):
            looks = 0
            async for _ in daemon.inbox.watch(every_s=0.2):
                looks += 1
                if looks == 2:  # the watch is surely on now
                    name.write_bytes(text_line(1))
                if looks > 2 and (found := daemon.inbox.scan()):
                    daemon.write("b.jsonl", text_line(2))
                    if len(found) == 2:
                        return found
        raise AssertionError

    assert [Path(path).name for path in anyio.run(main)] == ["b.jsonl", "x\\xff.jsonl"], "as it can be recorded"


def test_watch_goes_on_without_a_directory(daemon: Daemon) -> None:
    daemon.dir.rmdir()

    async def main() -> list[str]:
        with anyio.fail_after(120):
            async for _ in daemon.inbox.watch(every_s=0.1):
                if found := daemon.inbox.scan():
                    return found
                if not daemon.dir.exists():
                    daemon.dir.mkdir()
                    daemon.write("a.jsonl", text_line(1))
        raise AssertionError

    assert anyio.run(main) == [str(daemon.dir / "a.jsonl")]
