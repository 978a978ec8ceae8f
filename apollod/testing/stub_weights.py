"""A checkpoint's tensors in shared memory, in the layout of an engine: fused, cast, derived and tied.

No torch and no numpy: bytes and `mmap`. A trainer finds the same as with vLLM:
- rows of q, k and v projections, and of gate and up projections, one after another in one block;
- `A_log` in float32 where the checkpoint has bfloat16 (`cast`);
- a private packed copy of each `conv1d.weight`, which has to be derived again after a write (`rederive`);
- a tied head, if config.json has one.
"""

import json
from dataclasses import dataclass
from itertools import groupby
from math import prod
from pathlib import Path

from apollod.errors import ModelRefused
from apollod.wire.manifest import MISSING, OTHER, STALE, Manifest, MemoryFile, Status, TensorEntry, tensor_digest

ALIGN = 256
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
FUSED = (("self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."), ("mlp.gate_proj.", "mlp.up_proj."))
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"


@dataclass(frozen=True)
class Stored:
    """One tensor of the checkpoint: bytes `begin .. end` of a file, C order; `dtype` by its torch name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int

    def read(self) -> bytes:
        """The tensor's bytes."""
        with self.file.open("rb") as file:
            file.seek(self.begin)
            return file.read(self.end - self.begin)


def stored_tensors(model_dir: Path) -> list[Stored]:
    """Every tensor of a model directory, in the order of its files. Raises ModelRefused for a dtype that cannot be
    trained.

    Source: the safetensors format, 8 bytes little-endian length, JSON header, data.
    """
    found = []
    for file in sorted(model_dir.glob("*.safetensors")):
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in DTYPES:
                raise ModelRefused(f"{name} has dtype {entry['dtype']}", f"store it as one of {', '.join(DTYPES)}")
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            found.append(Stored(name, DTYPES[entry["dtype"]], tuple(entry["shape"]), file, begin, end))
    return found


class Layout:
    """The layout of tensors: `entries` by name, in the checkpoint's order, and `size` bytes in all."""

    def __init__(self, model_dir: Path, tensors: list[Stored]) -> None:
        self._model_dir = model_dir
        self._tied = _tied(model_dir, [t.name for t in tensors])
        self._placed: dict[str, TensorEntry] = {}
        self.size = 0
        for _, block in groupby(sorted(tensors, key=self._order), lambda tensor: self._order(tensor)[:2]):
            for tensor in block:
                self._place(tensor)
            self.size = -(-self.size // ALIGN) * ALIGN
        self.entries = [self._placed[t.name] for t in tensors]

    def manifest(self) -> Manifest:
        """The manifest for the supervisor."""
        return Manifest(str(self._model_dir), "memfd", (MemoryFile(self.size),), tuple(self.entries), self._tied)

    def _order(self, tensor: Stored) -> tuple[bool, str, int]:
        """Sort key: an alias comes after its base, and fused tensors form one block (the second part is its name)."""
        for parts in FUSED:
            for number, part in enumerate(parts):
                if part in tensor.name:
                    prefix, _, kind = tensor.name.partition(part)
                    return False, f"{prefix}{parts[0]}{kind}", number
        return tensor.name in self._tied, tensor.name, 0

    def _place(self, tensor: Stored) -> None:
        """Place a tensor right after the one before; a tied one that is also stored, at its base."""
        base = self._tied.get(tensor.name)
        offset = self._placed[base].offset if base in self._placed else self.size
        held = _held(tensor)
        status: Status = "cast" if held != tensor.dtype else "rederive" if "conv1d." in tensor.name else "live"
        stride = tuple(prod(tensor.shape[d + 1 :]) for d in range(len(tensor.shape)))
        entry = TensorEntry(tensor.name, 0, offset, tensor.shape, stride, held, tensor.dtype, status)
        self._placed[tensor.name] = entry
        self.size = max(self.size, entry.last_byte())


class Weights:
    """The tensors in memory (`view`: writable bytes of the whole file), and the copies derived from them."""

    def __init__(self, view: memoryview, manifest: Manifest) -> None:
        self._view = view
        self.manifest = manifest
        self._packed: dict[str, bytes] = {}

    def load(self, tensors: list[Stored]) -> None:
        """Fill the memory from the files and make the derived copies."""
        entries = {entry.name: entry for entry in self.manifest.tensors}
        for tensor in tensors:
            self._write(
                entries[tensor.name], _widened(tensor.read()) if _held(tensor) != tensor.dtype else tensor.read()
            )
        self.rederive()

    def rederive(self) -> int:
        """Make the derived copies again; returns their number."""
        self._packed = {e.name: self.read(e) for e in self.manifest.tensors if e.status == "rederive"}
        return len(self._packed)

    def differing(self, digests: dict[str, str]) -> dict[str, str]:
        """Tensors that differ from the trainer's digests, with the reason; derived ones first."""
        found = {}
        for entry in sorted(self.manifest.tensors, key=lambda t: t.status != "rederive"):
            data = self.read(entry)
            if entry.status == "rederive" and data != self._packed[entry.name]:
                found[entry.name] = STALE
            elif entry.name not in digests:
                found[entry.name] = MISSING
            elif tensor_digest(data) != digests[entry.name]:
                found[entry.name] = OTHER
        return found

    def read(self, entry: TensorEntry) -> bytes:
        """A tensor's present bytes in memory."""
        return bytes(self._view[entry.offset : entry.last_byte()])

    def _write(self, entry: TensorEntry, data: bytes) -> None:
        self._view[entry.offset : entry.last_byte()] = data


def _held(tensor: Stored) -> str:
    """The dtype in memory."""
    return "float32" if tensor.name.endswith("A_log") and tensor.dtype == "bfloat16" else tensor.dtype


def _widened(data: bytes) -> bytes:
    """bfloat16 as float32: the same sign, exponent and leading bits, little-endian."""
    return b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))


def _tied(model_dir: Path, names: list[str]) -> dict[str, str]:
    """Alias -> name of the tensor that stores it."""
    config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    text = {**config, **(config.get("text_config") or {})}
    base = next((name for name in names if name.endswith(EMBEDDING)), "")
    return {HEAD: base} if text.get("tie_word_embeddings") and base else {}
