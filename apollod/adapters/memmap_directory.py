"""Reads the tensors of a memory-mapped tensordict, such as torchrl's `VLLMDoubleBufferSyncScheme` writes: a directory
with `meta.json` and, for each tensor, a file of its bytes. Nested tensordicts are directories of the same kind.

Source: tensordict/_td.py, `_memmap_`. tensordict itself is not asked: it unpickles what is no tensor.
"""

import json
import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from apollod.adapters.system.files import open_without_links
from apollod.errors import RecordRefused
from apollod.wire.manifest import ITEM_BYTES

META, SUFFIX = "meta.json", ".memmap"
META_BYTES_MAX = 16 << 20
DEPTH_MAX = 16
_ABOUT_ALL = ("shape", "device", "_type")
"""keys of a `meta.json` that are about the whole, if they name neither a tensor nor a tensordict"""


class MemmapTensor(NamedTuple):
    """A tensor and its file. `dtype`: its torch name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


def read_meta(place: Path) -> list[MemmapTensor]:
    """The tensors of a directory, by name. Blocking. Raises RecordRefused, OSError."""
    try:
        return sorted(_tensors(place, "", 0))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordRefused(f"{place} is no memory-mapped tensordict ({error!r})", "send its directory") from error


def _tensors(place: Path, prefix: str, depth: int) -> Iterator[MemmapTensor]:
    meta = _meta(place / META)
    for key, entry in meta.items():
        if not isinstance(entry, dict):
            if key in _ABOUT_ALL:
                continue
            raise ValueError(f"{key!r} of {META}")
        name = prefix + key
        if os.sep in key or key in ("", ".", ".."):
            raise RecordRefused(f"{place / META} names {key[:200]!r}", "send tensors by their names in the checkpoint")
        if entry.get("type") == "TensorDict" and depth < DEPTH_MAX:
            if (place / key).is_symlink():
                raise RecordRefused(f"{place / key} is a link", "send a directory that has all of it")
            yield from _tensors(place / key, f"{name}.", depth + 1)
        elif "dtype" in entry and not entry.get("is_nested"):
            shape = tuple(int(size) for size in entry["shape"])
            yield MemmapTensor(name, str(entry["dtype"]).removeprefix("torch."), shape, place / (key + SUFFIX))
        else:
            raise RecordRefused(f"{name} of {place} is no tensor", "send a tensordict of tensors only")


def _meta(path: Path) -> dict[str, Any]:
    with os.fdopen(open_without_links(path), "rb") as file:
        text = file.read(META_BYTES_MAX + 1)
    if len(text) > META_BYTES_MAX:
        raise RecordRefused(f"{path} has more than {META_BYTES_MAX} bytes", "send the directory of one model")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{META} is no object")
    return found


def opened(one: MemmapTensor) -> int:
    """A descriptor of a tensor's file, which has as many bytes as its shape says. Raises RecordRefused, OSError."""
    descriptor = open_without_links(one.file)
    found = os.fstat(descriptor).st_size
    if found == one.bytes:
        return descriptor
    os.close(descriptor)
    raise RecordRefused(f"{one.file} has {found} bytes, {META} says {one.bytes}", "send it once its writer has ended")
