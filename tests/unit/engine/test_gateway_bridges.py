"""`apollod.reader` on files of the bridge `memmap`: a version is whole or not there."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from apollod.engine.gateway.bridges import CURRENT, RECORD, Disk, Memmap
from apollod.engine.gateway.weights import Weights
from apollod.reader import Reader, TornWeights
from apollod.store.fingerprint import directory_fingerprint


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    torch.manual_seed(1)
    tensors = {
        "model.embed_tokens.weight": torch.randn(5, 3).bfloat16(), "model.norm.weight": torch.randn(3),
        "scalar": torch.tensor(2.0), "counts": torch.arange(7), "nothing": torch.empty(0, 3),
    }  # fmt: skip
    save_file(tensors, model / "model.safetensors")
    made = Weights(model, "memmap")
    made.load(memoryview(bytearray(made.manifest.storages[0].bytes)))
    return made


def test_versions_alternate_between_two_slots_and_are_read_once(weights: Weights, tmp_path: Path) -> None:
    bridge, reader = Memmap(tmp_path / "sent"), Reader(tmp_path / "sent")
    assert reader.poll() is None
    for number in (1, 2, 3):
        weights.bytes_of("model.norm.weight")[:4] = bytes([number] * 4)
        staged = bridge.stage(weights, number)
        found = reader.poll()
        assert found is not None and (found.number, found.fingerprint) == (number, staged.fingerprint)
        assert set(found.tensors) == set(weights.tensors) and reader.poll() is None
        for name, one in found.tensors.items():
            stored = weights.tensors[name]
            assert (tuple(one.shape), str(one.dtype)) == (stored.shape, f"torch.{stored.dtype}")
            assert bytes(one.flatten().view(torch.uint8).numpy()) == bytes(weights.bytes_of(name)), name
    assert sorted(path.name for path in (tmp_path / "sent").iterdir()) == ["a", "b", CURRENT]


def test_a_torn_file_is_no_version(weights: Weights, tmp_path: Path) -> None:
    Memmap(tmp_path / "sent").stage(weights, 1)
    slot = (tmp_path / "sent" / CURRENT).resolve()
    file = slot / "model.norm.weight.memmap"
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(TornWeights):
        Reader(tmp_path / "sent").poll()


def test_a_slot_without_its_record_is_being_written(weights: Weights, tmp_path: Path) -> None:
    bridge = Memmap(tmp_path / "sent")
    bridge.stage(weights, 1)
    slot = (tmp_path / "sent" / CURRENT).resolve()
    kept = (slot / RECORD).read_text()
    (slot / RECORD).unlink()
    with pytest.raises(TornWeights):
        Reader(tmp_path / "sent").poll()
    (slot / RECORD).write_text(kept)
    assert json.loads(kept)["version"] == 1 and Reader(tmp_path / "sent").poll() is not None


def test_a_directory_of_disk_is_the_model_with_the_present_bytes(weights: Weights, tmp_path: Path) -> None:
    bridge = Disk(tmp_path / "sent")
    assert bridge.stage(weights, 0).fingerprint == directory_fingerprint(weights.directory) == weights.fingerprint()
    for number in (1, 2, 3):
        weights.bytes_of("scalar")[:] = bytes([number] * 4)
        staged = bridge.stage(weights, number)
    assert directory_fingerprint(tmp_path / "sent" / staged.name) == staged.fingerprint == weights.fingerprint()
    assert (tmp_path / "sent" / "v3" / "config.json").read_text() == "{}"
    assert sorted(path.name for path in (tmp_path / "sent").iterdir()) == ["v2", "v3"]
    again = bridge.stage(weights, 2)  # a number that a rollback gives again
    assert directory_fingerprint(tmp_path / "sent" / again.name) == weights.fingerprint()
    (tmp_path / "sent" / "v7").mkdir()
    Disk(tmp_path / "sent")
    assert [path.name for path in (tmp_path / "sent").iterdir()] == ["v7"], "a new life removes what is ours"
