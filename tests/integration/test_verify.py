"""`apollod ctl journal verify`: what it says of the chain and of what is derived from the events."""

import json
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support.journals import EXAMPLES, STORY, TWIN, shell, write

from apollod.adapters.journal import blobs, journal_reader, known_examples, verification
from apollod.adapters.journal.writer import Journal
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.settings import Settings, TrainerSettings


def verify(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    code = main(["ctl", "journal", "verify", "--json", "--file", str(path), *options])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "journal.db", STORY)


# --- the chain ----------------------------------------------------------------------------------------------------


def test_an_event_that_comes_during_the_walk_is_not_proclaimed(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, walk = verify(path, capsys), journal_reader.chained

    def disturbed(*args: Any) -> Iterator[Any]:
        yield from walk(*args)
        with shell(path) as db:  # here one that somebody forged
            db.execute(
                "INSERT INTO events SELECT (SELECT max(seq) + 1 FROM events), at_ns, kind, version, key, body, "
                "prev_hash, zeroblob(32) "
                "FROM events WHERE seq = 1"
            )

    monkeypatch.setattr(journal_reader, "chained", disturbed)
    assert good == (0, good[1] | {"ok": True, "first_bad": None, "events": len(STORY)})
    assert verify(path, capsys, "--expect", "0" * 64)[1] == {**good[1], "ok": False, "expected": None}
    monkeypatch.undo()
    assert verify(path, capsys)[1]["first_bad"] == len(STORY) + 1


def test_of_a_broken_chain_only_what_is_good_is_counted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ((head,),) = journal_reader.query(path, "SELECT hash FROM events WHERE seq = 7").rows
    with shell(path) as db:
        db.execute("DROP TRIGGER events_unchanged")
        db.execute("UPDATE events SET at_ns = 1 WHERE seq = 8")
    code, answer = verify(path, capsys, "--expect", head)
    assert code == 1 and not answer["ok"] and answer["first_bad"] == 8
    assert (answer["events"], answer["head_hash"], answer["expected"]) == (7, head, {"seq": 7, "after": 0})


# --- what is derived ----------------------------------------------------------------------------------------------


def flip_in_index(path: Path) -> None:
    """One bit of one entry of the index on `kind`: a step that no question finds any more."""
    with shell(path) as db:
        ((root, size),) = db.execute(
            "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = 'events_kind'"
        ).fetchall()
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"step.completed", 0, root * size)
    assert entry >= (root - 1) * size
    data[entry + 13] ^= 1
    path.write_bytes(data)


async def indexed(path: Path) -> None:
    """All ids go to the table, as they do when there are many."""
    journal = await Journal.open(path)
    while journal._known.examples._recent or journal._known.examples._sealed:
        await journal._known.examples.move(journal._writer)
    await journal.close()


async def known(path: Path) -> set[str]:
    journal = await Journal.open(path)
    try:
        return await journal.known([*EXAMPLES, TWIN])
    finally:
        await journal.close()


def edit(sql: str) -> Any:
    def run(path: Path) -> None:
        with shell(path) as db:
            db.execute(sql)

    return run


DAMAGE: dict[str, tuple[Any, str]] = {
    "a bit of the index on kind": (flip_in_index, "missing from index events_kind"),
    "an empty index of examples": (edit("DELETE FROM example_index"), "the example that event 5 accepted is missing"),
    "an example less": (
        edit(f"DELETE FROM example_index WHERE id = '{TWIN}'"),
        "the example that event 11 accepted is missing",
    ),
    "an example too many": (edit("INSERT INTO example_index VALUES ('x', 7)"), "names event 7 for an example"),
    "another event": (edit(f"UPDATE example_index SET seq = 6 WHERE id = '{TWIN}'"), "names event 6 for an example"),
    "complete up to nowhere": (
        edit("UPDATE meta SET value = '999' WHERE key = 'indexed_seq'"),
        "complete up to event 999",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_derived_is_verified_and_the_way_out_works(
    path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, words = DAMAGE[name]
    anyio.run(indexed, path)
    good = verify(path, capsys)
    assert good == (0, good[1] | {"ok": True, "events": len(STORY), "derived": None})
    spoil(path)
    code, answer = verify(path, capsys)
    assert code == 1 and words in answer["derived"]
    assert answer == good[1] | {"ok": False, "derived": answer["derived"]}, "the chain is not broken"
    assert main(["ctl", "journal", "verify", "--file", str(path)]) == 1
    said = capsys.readouterr().out
    assert (
        f"the events are good: {len(STORY)}, " in said and words in said and "broken" not in said and "ok:" not in said
    )
    _, file, sql = shlex.split(said.split("`")[1])
    with shell(Path(file)) as db:
        db.executescript(sql)
    if "example" in name:
        assert anyio.run(known, path) == {*EXAMPLES, TWIN}
    assert verify(path, capsys) == good
    assert len(journal_reader.query(path, "SELECT step FROM steps").rows) == 3


def test_an_index_whose_page_is_no_page_leaves_the_events_good(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(path) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events_kind'").fetchall()
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096 : (root - 1) * 4096 + 8] = b"\xff" * 8
    path.write_bytes(data)
    code, answer = verify(path, capsys)
    assert code == 1 and answer["first_bad"] is None and answer["events"] == len(STORY)
    assert "restore a backup" in answer["derived"] and ".recover" in answer["derived"]


def test_an_index_that_is_half_way_written_is_good(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows beyond the event up to which it is complete are those of a move that a crash cut off."""
    monkeypatch.setattr(known_examples, "SLICE", 2)

    async def one_slice() -> None:
        journal = await Journal.open(path)
        await journal._known.examples.move(journal._writer)
        await journal.close()

    anyio.run(one_slice)
    assert journal_reader.query(path, "SELECT count(*) FROM example_index").rows == [(2,)]
    assert verify(path, capsys)[0] == 0


# --- what the quality guard compares with -------------------------------------------------------------------------


def guarded(state: Path, *references: str) -> Path:
    """The journal of a daemon with a baseline of so many runs, and a look after them."""
    started = ev.DaemonStarted(1, "0", Settings(model_path="m", trainer=TrainerSettings()), state_dir=str(state))
    runs = [ev.QualityMeasured(n, "baseline", 0, "p", {}, references=one) for n, one in enumerate(references, 1)]
    state.mkdir(exist_ok=True)
    return write(state / "journal.db", [started, *runs, ev.QualityMeasured(9, "asked", 3, "p", {})])


def gone(path: Path) -> None:
    path.unlink()


def changed(path: Path) -> None:
    path.write_bytes(b"others")


def no_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(("spoil", "words"), [(gone, "No such file"), (changed, "changed"), (no_file, "directory")])
def test_the_file_of_the_baseline_in_force_is_verified(
    spoil: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / blobs.NAME
    first, second = blobs.keep(there, b"first run"), blobs.keep(there, b"second run")
    path = guarded(tmp_path, first, second)
    (there / first).unlink()  # as the daemon does: nobody needs it
    good = verify(path, capsys)
    assert good == (0, good[1] | {"ok": True, "references": None})
    spoil(there / second)
    code, answer = verify(path, capsys)
    assert code == 1 and answer == good[1] | {"ok": False, "references": answer["references"]}
    assert str(there / second) in answer["references"] and words in answer["references"]
    assert "apollod ctl quality baseline" in answer["references"]
    assert main(["ctl", "journal", "verify", "--file", str(path)]) == 1
    said = capsys.readouterr().out
    assert "the events are good" in said and answer["references"] in said and "ok:" not in said


@pytest.mark.parametrize("spoil", [gone, changed])
def test_the_files_that_examples_are_learned_from_are_verified(
    spoil: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = blobs.keep(tmp_path / blobs.NAME, b"rollouts")
    started = ev.DaemonStarted(1, "0", Settings(model_path="m", trainer=TrainerSettings()), state_dir=str(tmp_path))
    taken = ev.ExampleAccepted("a" * 32, msgspec.Raw(b'{"text":"x"}'), "environment:sums", 1, "rollout", teacher=digest)
    path = write(tmp_path / "journal.db", [started, taken])
    assert verify(path, capsys) == (0, verify(path, capsys)[1] | {"ok": True, "files": None})
    spoil(tmp_path / blobs.NAME / digest)
    code, answer = verify(path, capsys)
    assert code == 1 and answer["ok"] is False and "a" * 32 in answer["files"] and digest in answer["files"]
    assert main(["ctl", "journal", "verify", "--file", str(path)]) == 1
    assert "the events are good" in capsys.readouterr().out
    assert verify(write(tmp_path / "copy.db", [started, taken]), capsys)[0] == 0, "a copy has its files elsewhere"


def test_of_a_copy_and_of_a_journal_without_a_baseline_no_file_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon has another baseline by the time at which an archive is looked at."""
    path = guarded(tmp_path / "state", "d" * 32)
    assert verify(path, capsys)[0] == 1
    copy = tmp_path / "state" / "journal-00000012.db"
    copy.write_bytes(path.read_bytes())
    assert verify(copy, capsys)[0] == 0
    assert verify(guarded(tmp_path / "other"), capsys)[0] == 0


def test_a_baseline_that_is_replaced_meanwhile_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, named = guarded(tmp_path, "d" * 32), iter(["d" * 32])
    now = blobs.keep(tmp_path / blobs.NAME, b"newer")
    monkeypatch.setattr(verification, "_baseline_digest", lambda _: next(named, now))
    assert verification.reference_damage(path) is None
