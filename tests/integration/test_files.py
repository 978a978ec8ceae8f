"""Whole files or none, on a real file system."""

import os
from pathlib import Path

import pytest

from apollod.adapters.system import files


def test_write_atomic_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    files.write_atomic(tmp_path / "a", b"old")
    files.write_atomic(tmp_path / "a", b"new")
    assert [(f.name, f.read_bytes()) for f in tmp_path.iterdir()] == [("a", b"new")]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_atomic(tmp_path / "a", b"old")

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(tmp_path / "a", b"new")
    assert [(f.name, f.read_bytes()) for f in tmp_path.iterdir()] == [("a", b"old")]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_directory_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)  # a file system that cannot
    new, old = tmp_path / "new", tmp_path / "old"
    for directory in (new, old):
        directory.mkdir()
        (directory / directory.name).touch()
    files.put_in_place(new, old)
    assert (old / "new").exists()
    assert (new / "old").exists()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_directory_takes_an_empty_place(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    files.put_in_place(tmp_path / "new", tmp_path / "there")
    assert [f.name for f in tmp_path.iterdir()] == ["there"]
