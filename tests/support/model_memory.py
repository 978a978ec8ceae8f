"""Weights in a memory file as an engine lays them out, for trainers that are driven without one.

Used by benchmarks too, so nothing here needs pytest or `tests` on the path.
"""

import json
import mmap
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from apollod.wire.manifest import ITEM_BYTES, Manifest, MemoryFile, TensorEntry

ALIGN = 256
DTYPES = {"BF16": "bfloat16", "F32": "float32"}

EXPERT = re.compile(r"^(.*\.experts)\.(\d+)\.(\w+)\.weight$")


def as_vllm_lays_out(name: str) -> tuple[Any, ...]:
    """w13, and w2 behind it."""
    found = EXPERT.match(name)
    return (
        (found[1], found[3] in ("down_proj", "w2"), int(found[2]), found[3] in ("up_proj", "w3")) if found else (name,)
    )


@dataclass
class Memory:
    """A memory file filled from a model's safetensors files: tensors one after another, A_log widened to float32.
    Experts lie as vLLM has them: of all of a layer the gate and the other half in turn, then what comes after."""

    manifest: Manifest
    fd: int
    bytes: np.ndarray[Any, np.dtype[np.uint8]]

    @classmethod
    def of(cls, model_dir: Path, place: Callable[[str], Any] | None = None) -> "Memory":
        """`place`: key by which names are sorted, where they are to lie in another order."""
        entries, pieces, offset = [], [], 0
        tensors = list(chain.from_iterable(map(_tensors, sorted(model_dir.glob("*.safetensors")))))
        if place or any(EXPERT.match(name) for name, _, _ in tensors):
            tensors.sort(key=lambda one: (place or as_vllm_lays_out)(one[0]))
        for name, tensor, data in tensors:
            stored = DTYPES[tensor["dtype"]]
            cast = name.endswith("A_log") and stored == "bfloat16"
            if cast:
                data = (np.frombuffer(data, "<u2").astype("<u4") << 16).tobytes()
            shape = tuple(tensor["shape"])
            entries.append(
                TensorEntry(
                    name, 0, offset, shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))),
                    "float32" if cast else stored, stored, "cast" if cast else "live",
                )
            )  # fmt: skip
            pieces.append((offset, data))
            offset += -(-len(data) // ALIGN) * ALIGN
        fd = os.memfd_create("weights", os.MFD_CLOEXEC)
        os.truncate(fd, offset)
        view = np.frombuffer(mmap.mmap(fd, offset), np.uint8)
        for at, data in pieces:
            view[at : at + len(data)] = np.frombuffer(data, np.uint8)
        tied = _tied(model_dir, [entry.name for entry in entries])
        return cls(Manifest(str(model_dir), "memfd", (MemoryFile(offset),), tuple(entries), tied), fd, view)

    def span(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of one tensor; writing into it writes the weights."""
        entry = next(t for t in self.manifest.tensors if t.name == name)
        return self.bytes[entry.offset : entry.offset + prod(entry.shape) * ITEM_BYTES[entry.dtype]]


def _tied(model_dir: Path, names: list[str]) -> dict[str, str]:
    """A head that is stored as the embedding."""
    config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    embedding = next((name for name in names if name.endswith("embed_tokens.weight")), "")
    tied = {**config, **config.get("text_config", {})}.get("tie_word_embeddings")
    return {"lm_head.weight": embedding} if tied and embedding and "lm_head.weight" not in names else {}


def _tensors(file: Path) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """(name, header's entry, data) of every tensor."""
    raw = file.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    for name, tensor in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            yield name, tensor, raw[start + begin : start + end]
