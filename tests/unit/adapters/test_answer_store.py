"""Captured answers on disk: found by response id, bounded in bytes and age, readable while they are written."""

import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from apollod.adapters import answer_store
from apollod.adapters.answer_store import SECOND_NS, Answer, AnswerWriter


def answer(response: str, choice: int = 0, at_s: float = 0.0, size: int = 8) -> Answer:
    ids = array("I", range(size))
    return Answer(response, choice, int(at_s * SECOND_NS), "3", "stop", 7, ids[:3], ids, "asked?", "said.")


def test_an_answer_comes_back_as_it_was_with_all_its_choices(tmp_path: Path) -> None:
    path = tmp_path / "capture.db"
    assert answer_store.find(path, "r") == [] and answer_store.count(path) == 0
    writer = AnswerWriter(path, 1 << 20, 100.0)
    kept = [answer("r", 1), answer("r")._replace(redacted=True), answer("other")]
    writer.put(kept, SECOND_NS)
    assert answer_store.find(path, "r") == [kept[1], kept[0]], "by another connection, while the first is open"
    assert answer_store.count(path) == 3 and answer_store.find(path, "unknown") == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    writer.close()
    again = AnswerWriter(path, 1 << 20, 100.0)
    assert answer_store.count(path) == 3, "a new engine goes on with the file"
    again.close()


MARK = b"a telling sentence"
TOKENS = array("I", range(70_000, 70_032))
"""Their bytes stand for those of any answer's tokens."""


def telling(response: str, at_s: float, size: int) -> Answer:
    """An answer whose bytes can be looked for: prompt, text and tokens hold `MARK` or `TOKENS` all over."""
    text = (MARK.decode() + " ") * (size // len(MARK) + 1)
    ids = TOKENS * (size // (4 * len(TOKENS)) + 1)
    return Answer(response, 0, int(at_s * SECOND_NS), "3", "stop", 7, ids, ids, text, text)


def holding(directory: Path) -> list[str]:
    """The files that hold something of a telling answer."""
    tokens = TOKENS[:8].tobytes()
    return [file.name for file in directory.iterdir() if MARK[:9] in (found := file.read_bytes()) or tokens in found]


def size_of(directory: Path) -> int:
    """Bytes of all files; one that vanishes meanwhile counts nothing."""
    total = 0
    for file in directory.iterdir():
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            pass
    return total


@contextmanager
def peak_of(directory: Path) -> Iterator[list[int]]:
    """The most that the files took meanwhile, as a thread sees it that does nothing but look."""
    peak, done = [0], threading.Event()

    def look() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], size_of(directory))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield peak
    finally:
        done.set()
        looking.join()


@pytest.mark.parametrize("max_bytes", [1 << 16, 1 << 20])
def test_the_files_take_no_more_than_they_may_at_any_moment(tmp_path: Path, max_bytes: int) -> None:
    """Answers of all sizes, some too large, some that come again, in batches; the newest are there."""
    path, rng = tmp_path / "capture.db", random.Random(0)
    with peak_of(tmp_path) as peak:
        writer = AnswerWriter(path, max_bytes, 1e6)
        for n in range(40):
            sizes = [rng.choice((40, 500, 4000, max_bytes // 60, max_bytes)) for _ in range(rng.randrange(1, 6))]
            batch = [telling(f"r{rng.randrange(9)}" if size == 500 else f"{n}.{i}", n, size)
                     for i, size in enumerate(sizes)]  # fmt: skip
            writer.put([*batch, telling(f"last {n}", n, 40)], n * SECOND_NS)
            assert size_of(tmp_path) <= max_bytes, n
            assert answer_store.find(path, f"last {n}")
        writer.close()
    assert max_bytes // 3 < peak[0] <= max_bytes, "and it makes use of what it may take"


def test_the_oldest_go_first_when_it_is_too_much_and_the_old_ones_always(tmp_path: Path) -> None:
    path = tmp_path / "capture.db"
    writer = AnswerWriter(path, 1 << 18, 100.0)
    for n in range(40):
        writer.put([telling(f"r{n}", n, 3000)], n * SECOND_NS)
    kept = [n for n in range(40) if answer_store.find(path, f"r{n}")]
    assert 5 < len(kept) < 40 and kept == list(range(40 - len(kept), 40))
    writer.put([answer("late", at_s=135.5)], int(135.5 * SECOND_NS))
    assert [bool(answer_store.find(path, f"r{n}")) for n in (34, 35, 36)] == [False, False, True]
    assert answer_store.find(path, "r36", since_ns=37 * SECOND_NS) == [], "old, though nobody removed it yet"
    writer.close()


def by_age(writer: AnswerWriter, path: Path) -> None:
    writer.put([answer("s", at_s=200)], 200 * SECOND_NS)


def by_size(writer: AnswerWriter, path: Path) -> None:
    for n in range(100):
        writer.put([answer(f"s{n}", at_s=2, size=4000)], 2 * SECOND_NS)


def by_another(writer: AnswerWriter, path: Path) -> None:
    writer.put([answer("s", at_s=200)], 2 * SECOND_NS)
    assert answer_store.tidy(path, 1 << 20, 100.0, 200 * SECOND_NS) == 300 * SECOND_NS, "when the next one is due"


def by_the_next(writer: AnswerWriter, path: Path) -> None:
    writer.put([answer("r0", at_s=1), answer("r1", at_s=1), answer("s", at_s=1)], SECOND_NS)


@pytest.mark.parametrize("drop", [by_age, by_size, by_another, by_the_next])
def test_what_was_dropped_is_in_no_file_any_more(tmp_path: Path, drop: Callable[[AnswerWriter, Path], None]) -> None:
    """While the file is open, and small answers that share a page with others as well as long ones."""
    path = tmp_path / "capture.db"
    writer = AnswerWriter(path, 1 << 20, 100.0)
    writer.put([telling("r0", 0, 60), answer("s", at_s=0), telling("r1", 0, 9000)], 0)
    assert holding(tmp_path) == ["capture.db"]
    drop(writer, path)
    assert holding(tmp_path) == [] and answer_store.find(path, "r0") != [telling("r0", 0, 60)]
    writer.close()
    answer_store.remove(path)
    assert list(tmp_path.iterdir()) == []


def test_room_that_is_not_needed_any_more_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "capture.db"
    writer = AnswerWriter(path, 1 << 20, 100.0)
    empty = size_of(tmp_path)
    writer.put([telling(f"r{n}", 0, 9000) for n in range(9)], 0)
    assert size_of(tmp_path) > 10 * empty
    writer.put([], 200 * SECOND_NS)
    assert size_of(tmp_path) == empty
    writer.put([telling(f"r{n}", 200, 9000) for n in range(9)], 200 * SECOND_NS)
    writer.close()
    lowered = AnswerWriter(path, 1 << 16, 100.0)
    lowered.put([], 200 * SECOND_NS)
    assert size_of(tmp_path) <= 1 << 16
    lowered.close()


VICTIM = """
import sys
from pathlib import Path
from apollod.adapters.answer_store import AnswerWriter
sys.path[:0] = sys.argv[2:]
from unit.adapters.test_answer_store import telling
writer = AnswerWriter(Path(sys.argv[1]), 1 << 18, 100.0)
print("ready", flush=True)
for n in range(1 << 30):
    writer.put([telling(f"r{n}", 0, 3000)], 0)
"""


def test_a_writer_that_is_killed_leaves_nothing_that_the_next_one_does_not_clear(tmp_path: Path) -> None:
    path, tests = tmp_path / "capture.db", Path(__file__).parents[2]
    for n in range(2):
        process = subprocess.Popen([sys.executable, "-c", VICTIM, str(path), str(tests)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        while answer_store.count(path) == 0:
            time.sleep(0.01)
        time.sleep(0.1 + 0.03 * n)  # into the midst of its writing
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert size_of(tmp_path) <= 1 << 18 and answer_store.count(path) > 0
    assert answer_store.tidy(path, 1 << 18, 100.0, 200 * SECOND_NS) is None
    assert holding(tmp_path) == [] and answer_store.count(path) == 0


def test_a_file_of_an_older_format_goes_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "capture.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA journal_mode = WAL; CREATE TABLE answers (x); PRAGMA user_version = 1")
        db.execute("INSERT INTO answers VALUES (?)", (MARK,))
        db.commit()
        assert holding(tmp_path) == ["capture.db-wal"], "as a daemon that was killed leaves it"
        assert answer_store.tidy(path, 1 << 20, 100.0, 0) is None
        assert list(tmp_path.iterdir()) == []
    assert answer_store.tidy(path, 1 << 20, 100.0, 0) is None, "nothing there, nothing made"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 50, None])
def test_a_file_of_something_else_makes_room(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "capture.db"
    if content is None:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE answers (x)")
            db.execute("PRAGMA user_version = 99")
    else:
        path.write_bytes(content)
    assert answer_store.find(path, "r") == [] and answer_store.count(path) == 0
    writer = AnswerWriter(path, 1 << 20, 100.0)
    writer.put([answer("r")], 0)
    writer.close()
    assert answer_store.count(path) == 1


def test_an_id_that_comes_again_is_the_last_answer_and_counts_once(tmp_path: Path) -> None:
    """As the turns of one response do (`resp_..._N`)."""
    path = tmp_path / "capture.db"
    writer = AnswerWriter(path, 1 << 20, 100.0)
    for n in range(9):
        writer.put([answer("again", at_s=n), answer("again", at_s=n + 1), answer("other", at_s=1)], n * SECOND_NS)
    assert answer_store.find(path, "again")[0].at_ns == 9 * SECOND_NS
    assert answer_store.count(path) == 2
    writer.close()


def test_a_file_that_cannot_be_opened_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    path.mkdir()
    assert answer_store.tidy(path, 1 << 20, 100.0, 0) is None
