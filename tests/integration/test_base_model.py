"""The weights before the first step: kept whole, cheaply where the disk can, and their loss is noticed."""

import os
import resource
import shutil
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from apollod.adapters import base_model
from apollod.adapters.base_model import RECORD, keep, problem
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.supervisor.executor import Executor

WEIGHTS = b"w" * 100_000


def going_on() -> bool:
    return False


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """As a hub's cache has it: symbolic links to blobs, files of other formats, a hidden directory."""
    directory = tmp_path / "model"
    (directory / "extra").mkdir(parents=True)
    (directory / ".cache").mkdir()
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (blobs / "aa").write_bytes(WEIGHTS)
    (directory / "model.safetensors").symlink_to(blobs / "aa")
    for name in ("config.json", "extra/template.jinja", "pytorch_model.bin", ".cache/lock"):
        (directory / name).write_text(name)
    return directory


def files(directory: Path) -> set[str]:
    return {str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file()}


def test_weights_are_not_copied_where_a_link_does(model: Path, tmp_path: Path) -> None:
    kept = keep(model, tmp_path / "base", "auto", going_on)
    assert files(tmp_path / "base") == {"model.safetensors", "config.json", "extra/template.jinja", RECORD}
    assert (tmp_path / "base" / "model.safetensors").read_bytes() == WEIGHTS
    assert not (tmp_path / "base" / "model.safetensors").is_symlink()
    assert kept.how in ("reflink", "link") and kept.bytes < 100
    if kept.how == "link":
        assert os.path.samefile(tmp_path / "base" / "model.safetensors", model / "model.safetensors")
    assert not os.path.samefile(tmp_path / "base" / "config.json", model / "config.json")
    assert problem(tmp_path / "base") == ""


def test_the_base_outlives_a_model_directory_that_is_removed_or_replaced(model: Path, tmp_path: Path) -> None:
    keep(model, tmp_path / "base", "auto", going_on)
    (tmp_path / "new").write_bytes(b"n" * 100_000)
    (tmp_path / "new").replace(tmp_path / "blobs" / "aa")  # what a tool does that saves safely
    shutil.rmtree(model)
    assert problem(tmp_path / "base") == ""
    assert (tmp_path / "base" / "model.safetensors").read_bytes() == WEIGHTS


def test_a_copy_also_withstands_an_edit_in_place_and_a_link_tells_of_it(model: Path, tmp_path: Path) -> None:
    linked = keep(model, tmp_path / "linked", "auto", going_on)
    copied = keep(model, tmp_path / "copied", "copy", going_on)
    assert copied.how == "copy" and copied.bytes > len(WEIGHTS)
    with open(tmp_path / "blobs" / "aa", "r+b") as file:
        file.write(b"x")
    assert problem(tmp_path / "copied") == "" and (tmp_path / "copied" / "model.safetensors").read_bytes() == WEIGHTS
    if linked.how == "link":
        assert problem(tmp_path / "linked").endswith("model.safetensors was changed")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda base: shutil.rmtree(base), "is gone"),
        (lambda base: (base / "model.safetensors").unlink(), "model.safetensors is gone"),
        (lambda base: (base / "config.json").write_text("{}"), "config.json was changed"),
        (lambda base: (base / RECORD).write_text("{"), "does not decode"),
        (lambda base: (base / RECORD).unlink(), "is gone"),
    ],
)
def test_a_base_that_is_not_what_it_was_is_named(model: Path, tmp_path: Path, harm, said: str) -> None:
    base = tmp_path / "base"
    keep(model, base, "copy", going_on)
    harm(base)
    assert said in problem(base)


def test_a_base_that_cannot_be_seen_for_want_of_open_files_is_not_lost(model: Path, tmp_path: Path) -> None:
    keep(model, base := tmp_path / "base", "copy", going_on)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            (base / RECORD).read_bytes()
        assert problem(base) == ""
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    shutil.rmtree(base)
    assert problem(base).endswith("is gone")


def test_without_room_or_when_stopped_nothing_is_left(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="stopped"):
        keep(model, tmp_path / "base", "copy", lambda: True)
    monkeypatch.setattr(base_model, "SPARE_BYTES", 1 << 60)
    with pytest.raises(OSError, match=r"takes \d+ bytes, .* has \d+ free"):
        keep(model, tmp_path / "base", "copy", going_on)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blobs", "model"]


def test_an_attempt_that_was_killed_is_done_anew(model: Path, tmp_path: Path) -> None:
    (tmp_path / "base.tmp").mkdir()
    (tmp_path / "base.tmp" / "model.safetensors").write_bytes(b"half")
    keep(model, tmp_path / "base", "auto", going_on)
    assert problem(tmp_path / "base") == "" and not (tmp_path / "base.tmp").exists()


def test_another_file_system_gets_a_copy(model: Path, tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == model.stat().st_dev:
        pytest.skip("there is no second file system here")
    target = elsewhere / f"apollod-base-{os.getpid()}"
    try:
        assert keep(model, target, "auto", going_on).how == "copy"
    except OSError as error:
        pytest.skip(f"it is too small: {error}")
    finally:
        shutil.rmtree(target, ignore_errors=True)


def test_a_name_that_cannot_be_written_down_is_said(model: Path, tmp_path: Path) -> None:
    """The daemon goes on without a base, and its event is recorded."""
    (model / os.fsdecode(b"caf\xe9.txt")).write_text("au lait")
    told: list[inp.Input] = []

    async def submit(input_: inp.Input) -> None:
        told.append(input_)

    async def main() -> None:
        none = cast(Any, None)
        async with anyio.create_task_group() as tasks:
            executor = Executor(none, none, none, none, submit, tasks)
            await executor.run(fx.KeepBase(model_dir=str(model), path=str(tmp_path / "base"), how="auto"))

    anyio.run(main)
    (done,) = told
    assert isinstance(done, inp.BaseLost) and r"'caf\udce9.txt' is no file name in UTF-8; rename it" in done.reason
    assert done.reason.isascii() and not (tmp_path / "base").exists()
