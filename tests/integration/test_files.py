"""Whole files or none, on a real file system."""

from pathlib import Path

import pytest

from apollod.adapters.system import files


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
