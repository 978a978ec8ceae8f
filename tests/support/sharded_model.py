"""Small sharded models as bytes: real headers, random weights, and later generations of them."""

import json
import random
from pathlib import Path

import numpy as np

from apollod.store.model_files import INDEX
from apollod.store.pieces import Piece

BLOCK = 4096


def header_of(tensors, metadata=True):
    """Length and header of a safetensors file with (name, dtype, shape, bytes) tensors in this order."""
    table, at = {"__metadata__": {"format": "pt"}} if metadata else {}, 0
    for name, dtype, shape, count in tensors:
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def model(chance: random.Random, shards: int, blocks=(3, 12)) -> dict[str, bytes]:
    """File name -> bytes, index included."""
    files, weight_map = {}, {}
    for shard in range(shards):
        name = "model.safetensors" if shards == 1 else f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        tensors = []
        for number in range(chance.randint(1, 3)):
            count = chance.randint(*blocks) * BLOCK // 4 * 2 + chance.choice([0, 2, 1000])
            tensors.append((f"layers.{shard}.{number}.weight", "BF16", (count // 2,), count // 2 * 2))
        files[name] = header_of(tensors) + chance.randbytes(sum(t[3] for t in tensors))
        weight_map |= {t[0]: name for t in tensors}
    if shards > 1:
        files[INDEX] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    return files


def data_start(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def changed(chance: random.Random, files: dict[str, bytes], share: float) -> dict[str, bytes]:
    """Other weights: this share of the blocks of each file differs (none of a file now and then)."""
    later = dict(files)
    for name, content in files.items():
        if not name.endswith(".safetensors") or chance.random() < 0.15:
            continue
        data, start = bytearray(content), data_start(content)
        for offset in range(start, len(data), BLOCK):
            if chance.random() < share:
                end = min(offset + BLOCK, len(data))
                data[offset:end] = (np.frombuffer(data[offset:end], np.uint8) ^ chance.randint(1, 255)).tobytes()
        later[name] = bytes(data)
    return later


def pieces(files: dict[str, bytes], step=7001):
    """The data of all files in uneven pieces."""
    for name in sorted(name for name in files if name.endswith(".safetensors")):
        content = files[name]
        for offset in range(data_start(content), len(content), step):
            yield Piece(name, offset, content[offset : offset + step])


def write(directory: Path, files: dict[str, bytes]) -> Path:
    """The model as a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text("{}")
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def read(directory: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """What the directory holds under the names of `files`."""
    return {name: (directory / name).read_bytes() for name in files}
