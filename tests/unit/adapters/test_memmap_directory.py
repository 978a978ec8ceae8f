"""Memory-mapped tensordicts as updates: the layout is that of tensordict 0.14.3, byte for byte where it is quoted."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from apollod.adapters import memmap_directory, update_files
from apollod.adapters.memmap_directory import read_meta
from apollod.adapters.update_files import Manifest, take_directory
from apollod.errors import RecordRefused

WHOLE = '"shape":[],"device":"cpu","_type":"<class \'tensordict._td.TensorDict\'>"}'
QUOTED = {
    "": '{"a.b":{"device":"cpu","shape":[2,3],"dtype":"torch.bfloat16","is_nested":false},"x":{"type":"TensorDict"},'
    '"e":{"device":"cpu","shape":[0,4],"dtype":"torch.float32","is_nested":false},' + WHOLE,
    "x": '{"y.w":{"device":"cpu","shape":[3],"dtype":"torch.float32","is_nested":false},"n":{"type":"TensorDict"},'
    + WHOLE,
    "x/n": '{"shape":{"device":"cpu","shape":[],"dtype":"torch.float32","is_nested":false},"device":"cpu",'
    '"_type":"<class \'tensordict._td.TensorDict\'>"}',
}
"""its `meta.json` by directory; in the last one a tensor is called `shape`; an empty tensor has no file"""
STORED = {
    "a.b": torch.randn(2, 3).bfloat16(),
    "e": torch.empty(0, 4),
    "x.n.shape": torch.tensor(1.5),
    "x.y.w": torch.ones(3),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A memory-mapped tensordict."""
    for name, meta in QUOTED.items():
        (tmp_path / "sent" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "sent" / name / "meta.json").write_text(meta)
    for name, file in {"a.b": "a.b", "x.y.w": "x/y.w", "x.n.shape": "x/n/shape"}.items():
        (tmp_path / "sent" / f"{file}.memmap").write_bytes(STORED[name].view(-1).view(torch.uint8).numpy().tobytes())
    return tmp_path / "sent"


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """A model with these tensors."""
    (tmp_path / "model").mkdir()
    save_file(STORED, tmp_path / "model" / "model.safetensors")
    return Manifest(tmp_path / "model")


def taken(place: Path, manifest: Manifest) -> Path:
    """The file that is made of it."""
    (one,) = take_directory(str(place), "memmap", [str(place.parent)], place.parent / "updates", manifest)
    file = place.parent / "updates" / one.file
    assert (one.targets, one.tensors) == (frozenset(STORED), len(STORED)) and one.bytes == 12 + 12 + 4
    assert update_files.problem(file.parent, file.name) == ""
    return file


def test_its_tensors_are_one_safetensors_file(place: Path, manifest: Manifest) -> None:
    assert [one.name for one in read_meta(place)] == sorted(STORED)
    found = load_file(taken(place, manifest))
    assert found.keys() == STORED.keys()
    assert all(torch.equal(found[name], one) and found[name].dtype == one.dtype for name, one in STORED.items())
    assert load(taken(place, manifest).read_bytes()).keys() == STORED.keys(), "again, of the same name"


def meta(changed: dict[str, Any] | str, at: str = "") -> Callable[[Path], None]:
    def change(place: Path) -> None:
        file = place / at / "meta.json"
        new = changed if isinstance(changed, str) else json.dumps(json.loads(file.read_text()) | changed)
        file.write_text(new)

    return change


def entry(**changes: Any) -> dict[str, Any]:
    return {"a.b": {"device": "cpu", "shape": [2, 3], "dtype": "torch.bfloat16", "is_nested": False} | changes}


def linked(name: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        (place / name).rename(place.parent / "elsewhere")
        (place / name).symlink_to(place.parent / "elsewhere")

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda place: os.truncate(place / "a.b.memmap", 11), "a.b.memmap has 11 bytes, meta.json says 12"),
        (lambda place: (place / "a.b.memmap").write_bytes(bytes(13)), "has 13 bytes"),
        (lambda place: (place / "a.b.memmap").unlink(), "cannot be read"),
        (lambda place: (place / "meta.json").unlink(), "cannot be read"),
        (lambda place: ((place / "a.b.memmap").unlink(), os.mkfifo(place / "a.b.memmap")), "is not a file"),
        (linked("a.b.memmap"), "a.b.memmap is a link"),
        (linked("meta.json"), "meta.json is a link"),
        (linked("x"), "x is a link"),
        (meta("[]"), "is no memory-mapped tensordict"),
        (meta("{"), "is no memory-mapped tensordict"),
        (meta('{"a":' * 100_000), "is no memory-mapped tensordict"),
        (meta({"more": 1}), "is no memory-mapped tensordict"),
        (meta({"s": {"type": "NonTensorData"}}), "s of "),
        (meta({"../a": entry()["a.b"]}), "names '../a'"),
        (meta({"b": entry()["a.b"]}), "no tensor 'b'"),
        (meta(entry(is_nested=True)), "is no tensor"),
        (meta(entry(shape="2")), "a.b has shape [2]"),
        (meta(entry(shape=None)), "is no memory-mapped tensordict"),
        (meta(entry(shape=[6])), "a.b has shape [6]"),
        (meta(entry(shape=[-2, -3])), "a.b has shape"),
        (meta(entry(dtype="torch.int16")), "a.b is int16"),
        (meta({"a": entry()["a.b"] | {"shape": [3]}}, "x"), "no tensor 'x.a'"),
    ],
)
def test_what_it_cannot_be_is_refused(
    place: Path, manifest: Manifest, change: Callable[[Path], None], words: str
) -> None:
    change(place)
    with pytest.raises(RecordRefused) as refused:
        taken(place, manifest)
    assert words in refused.value.line() and "\n" not in refused.value.line()
    updates = place.parent / "updates"
    assert not updates.exists() or not os.listdir(updates)


@pytest.mark.parametrize("way", ["over", "touched"])
def test_a_writer_that_goes_on_is_noticed(
    place: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It writes over a file that was read, while another one is read; or one whose clock is too coarse to tell."""
    copy = update_files._Part.copy

    def slow(part: Any, source: Any, digest: Any = None) -> None:
        copy(part, source, digest)
        file = place / "a.b.memmap"
        info = file.stat()
        if way == "over":
            file.write_bytes(bytes(12))
            os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
        else:
            os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns + 1))

    monkeypatch.setattr(update_files._Part, "copy", slow)
    with pytest.raises(RecordRefused, match=r"a\.b\.memmap is being written"):
        taken(place, manifest)
    assert not os.listdir(place.parent / "updates")


def test_a_record_of_many_megabytes_is_not_read(
    place: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memmap_directory, "META_BYTES_MAX", 100)
    with pytest.raises(RecordRefused, match="has more than 100 bytes"):
        taken(place, manifest)
