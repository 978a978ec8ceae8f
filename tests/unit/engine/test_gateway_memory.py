"""The trainer's memory as a tensor, in pieces: what `tests/gpu/test_nccl.py` does on a device, here in host memory."""

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from apollod.bridges.facts import BRIDGES, facts, facts_of
from apollod.engine.gateway import device_memory, weights
from apollod.engine.gateway.bridges import Disk, Memmap
from apollod.engine.gateway.device_memory import DeviceMemory
from apollod.engine.gateway.weights import Weights
from apollod.errors import ModelRefused
from apollod.reader import Reader
from apollod.store.fingerprint import directory_fingerprint
from apollod.wire.manifest import CudaHandle, Manifest, MemoryFile, Process


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose tensors are several pieces each."""
    monkeypatch.setattr(weights, "CHUNK_BYTES", 64)
    monkeypatch.setattr(device_memory, "CHUNK_BYTES", 64)
    torch.manual_seed(1)
    tensors = {
        "model.embed_tokens.weight": torch.randn(25, 3).bfloat16(), "model.norm.weight": torch.randn(33),
        "scalar": torch.tensor(2.0), "counts": torch.arange(30), "nothing": torch.empty(0, 3),
    }  # fmt: skip
    (tmp_path / "model").mkdir()
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    return tmp_path / "model"


def loaded(model: Path) -> tuple[Weights, torch.Tensor]:
    made = Weights(model, "disk")
    flat = torch.full((made.manifest.storages[0].bytes,), 0xAA, dtype=torch.uint8)
    made.load(DeviceMemory(flat))
    return made, flat


def test_what_is_loaded_changed_and_sent_are_the_same_bytes(model: Path, tmp_path: Path) -> None:
    made, flat = loaded(model)
    assert made.fingerprint() == directory_fingerprint(model)
    entry = next(one for one in made.manifest.tensors if one.name == "model.norm.weight")
    flat[entry.offset : entry.last_byte()].view(torch.float32)[:] = 5.0  # as the trainer does, by its own mapping
    assert made.tensor("model.norm.weight").tolist() == [5.0] * 33
    assert b"".join(made.pieces_of("model.norm.weight")) == bytes(made.bytes_of("model.norm.weight"))
    assert made.tensor("scalar").shape == () and made.tensor("nothing").shape == (0, 3)
    staged = Disk(tmp_path / "sent").stage(made, 1)
    assert directory_fingerprint(tmp_path / "sent" / "v1") == staged.fingerprint != directory_fingerprint(model)
    Memmap(tmp_path / "slots").stage(made, 1)
    found = Reader(tmp_path / "slots").poll()
    assert found is not None and found.fingerprint == staged.fingerprint
    assert found.tensors["model.norm.weight"].tolist() == [5.0] * 33


def test_a_file_that_ends_early_is_refused(model: Path) -> None:
    made = Weights(model, "disk")
    file = model / "model.safetensors"
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    last = max(json.loads(data[8 : 8 + length])["model.norm.weight"]["data_offsets"])
    file.write_bytes(data[: 8 + length + last - 1])
    with pytest.raises(ModelRefused, match=r"ends inside model\.norm\.weight"):
        made.load(DeviceMemory(torch.zeros(made.manifest.storages[0].bytes, dtype=torch.uint8)))
    assert not DeviceMemory(torch.zeros(8, dtype=torch.uint8)).fill(0, 8, io.BytesIO(b"seven.."))


@pytest.mark.parametrize("bridge", BRIDGES)
def test_device_memory_ends_with_the_process_that_exported_it(bridge: str) -> None:
    def manifest(*storages: Any) -> Manifest:
        return Manifest("/m", bridge, storages, ())

    handle = CudaHandle(8, "GPU-1", bytes(64), 0, 8, Process(1, 1))
    assert facts_of(manifest(MemoryFile(8))) == facts(bridge)
    assert not facts_of(manifest(handle)).outlives_engine
    assert facts_of(manifest(handle)).needs_pause == facts(bridge).needs_pause
