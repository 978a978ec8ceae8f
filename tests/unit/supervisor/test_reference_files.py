"""References of a baseline in the blobs beside the journal: kept, found again in another life, gone, and damaged."""

from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from apollod.adapters.journal import blobs
from apollod.curation.probes.references import Reference, write_references
from apollod.supervisor.quality.reference_files import ReferenceFiles, remove_unused
from apollod.wire.teacher import Teacher, digest_of, write_teacher

TEACHER = Teacher(array("I", [7, 8]), array("I", [7, 9, 8, 3]), array("f", [-0.5, -1.5, -0.25, -2.0]), 2, 4)
KNOWN = {"b": Reference((1, 2), TEACHER), "a": Reference((5,), TEACHER)}


def test_what_was_kept_is_there_in_this_life_and_in_the_next(tmp_path: Path) -> None:
    files = ReferenceFiles()
    digest = files.keep(tmp_path / "blobs", KNOWN)
    path = tmp_path / "blobs" / digest
    assert path.read_bytes() == write_references(KNOWN) and digest == digest_of(path.read_bytes())
    assert ReferenceFiles().of(tmp_path / "blobs", digest) == KNOWN
    path.unlink()
    assert files.of(tmp_path / "blobs", digest) == KNOWN, "it is in memory"


def test_of_none_there_is_no_file_and_of_no_file_there_are_none(tmp_path: Path) -> None:
    files = ReferenceFiles()
    assert files.keep(tmp_path, {}) == "" and not list(tmp_path.iterdir())
    files.keep(tmp_path, KNOWN)
    assert files.of(tmp_path, "") == {}


def test_those_of_a_newer_baseline_are_others(tmp_path: Path) -> None:
    files = ReferenceFiles()
    first, second = files.keep(tmp_path, KNOWN), files.keep(tmp_path, {"a": KNOWN["a"]})
    assert files.of(tmp_path, first) == KNOWN and files.of(tmp_path, second).keys() == {"a"}


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def no_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(("damage", "said"), [(gone, "No such file"), (cut, "was changed"), (no_file, "directory")])
def test_a_file_that_cannot_be_used_is_none_and_that_is_said_once_until_it_is_back(
    damage: Callable[[Path], None], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = ReferenceFiles().keep(tmp_path, KNOWN)
    path, files = tmp_path / digest, ReferenceFiles()
    damage(path)
    assert files.of(tmp_path, digest) == files.of(tmp_path, digest) == {}
    out = capsys.readouterr().out
    assert out.count("quality.without_references") == 1 and said in out and "ctl quality baseline" in out
    if path.is_dir():
        path.rmdir()
    path.write_bytes(write_references(KNOWN))
    assert files.of(tmp_path, digest) == KNOWN


def test_a_file_that_was_made_by_somebody_else_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = digest_of(b"other")
    (tmp_path / digest).write_bytes(b"other")
    assert ReferenceFiles().of(tmp_path, digest) == {} and "not references of probes" in capsys.readouterr().out


# --- those that no baseline in force needs ------------------------------------------------------------------------

OLD = {"a": Reference((5, 6), TEACHER)}
LINKED = {"a": Reference((5, 7), TEACHER)}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_those_of_no_baseline_go_and_nothing_else_does(tmp_path: Path) -> None:
    """Teachers of examples lie there, too, and a replay from the beginning needs every one of them."""
    there, elsewhere = tmp_path / "blobs", tmp_path / "elsewhere"
    in_force, old = ReferenceFiles().keep(there, KNOWN), ReferenceFiles().keep(there, OLD)
    stay = {
        in_force,
        blobs.keep(there, write_teacher(TEACHER)),
        blobs.keep(there, b"who knows"),
        blobs.keep(there, b""),
    }
    elsewhere.write_bytes(write_references(LINKED))
    changed, link, directory = "0" * 32, digest_of(write_references(LINKED)), "2" * 32
    (there / changed).write_bytes(write_references(OLD))
    (there / link).symlink_to(elsewhere)
    (there / directory).mkdir()
    (there / f"{old}.mine").write_bytes(write_references(OLD))
    stay |= {changed, link, directory, f"{old}.mine"}
    assert remove_unused(there, in_force) == [old] and names(there) == stay
    assert elsewhere.exists() and remove_unused(there, in_force) == [] and remove_unused(tmp_path / "missing", "") == []
    assert remove_unused(there, "") == [in_force], "where no baseline is in force they are of nobody"


def test_a_look_after_a_new_baseline_removes_those_of_the_old_one(tmp_path: Path) -> None:
    files = ReferenceFiles()
    old, new = files.keep(tmp_path, OLD), files.keep(tmp_path, KNOWN)
    files.of(tmp_path, old)  # its event did not come yet
    files.tidy(tmp_path, new)
    files.tidy(tmp_path, "")
    assert names(tmp_path) == {old, new}, "not in force"
    files.of(tmp_path, new)
    files.tidy(tmp_path, new)
    assert names(tmp_path) == {new}


def test_as_long_as_those_in_force_cannot_be_used_nothing_goes(tmp_path: Path) -> None:
    old, new = ReferenceFiles().keep(tmp_path, OLD), ReferenceFiles().keep(tmp_path, KNOWN)
    (tmp_path / new).unlink()
    files = ReferenceFiles()
    files.of(tmp_path, new)
    files.tidy(tmp_path, new)
    assert names(tmp_path) == {old}


def test_what_was_said_at_the_start_is_not_said_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ReferenceFiles()
    files.complained("0" * 32)
    assert files.of(tmp_path, "0" * 32) == {} and not capsys.readouterr().out
