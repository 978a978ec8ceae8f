"""Captured answers on disk: found by response id, bounded in bytes and age, readable while they are written."""

import sqlite3
import stat
from array import array
from pathlib import Path

import pytest

from apollod.adapters.capture import answer_store
from apollod.adapters.capture.answer_store import SECOND_NS, Answer, AnswerWriter


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


def test_the_oldest_go_first_when_it_is_too_much_and_the_old_ones_always(tmp_path: Path) -> None:
    path = tmp_path / "capture.db"
    writer = AnswerWriter(path, 3 * answer("r0", size=1000).bytes, 100.0)
    for n in range(5):
        writer.put([answer(f"r{n}", at_s=n, size=1000)], n * SECOND_NS)
    assert [bool(answer_store.find(path, f"r{n}")) for n in range(5)] == [False, False, True, True, True]
    writer.put([answer("late", at_s=103.5)], int(103.5 * SECOND_NS))
    assert [bool(answer_store.find(path, f"r{n}")) for n in (2, 3, 4)] == [False, False, True]
    assert answer_store.find(path, "r4", since_ns=5 * SECOND_NS) == [], "old, though nobody removed it yet"
    writer.close()


def test_what_was_dropped_is_not_in_the_file_any_more(tmp_path: Path) -> None:
    path = tmp_path / "capture.db"
    writer = AnswerWriter(path, 1 << 20, 1.0)
    writer.put([answer("r")._replace(answer="a telling sentence")], 0)
    writer.put([answer("s", at_s=10)], 10 * SECOND_NS)
    writer.close()
    assert b"a telling sentence" not in path.read_bytes() and answer_store.count(path) == 1
    answer_store.remove(path)
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
    path = tmp_path / "capture.db"
    writer = AnswerWriter(path, 3 * answer("r", size=1000).bytes, 100.0)
    for n in range(9):
        writer.put([answer("again", at_s=n, size=1000), answer("other", at_s=1, size=1000)], n * SECOND_NS)
    assert answer_store.find(path, "again")[0].at_ns == 8 * SECOND_NS
    assert answer_store.count(path) == 2
    writer.close()
