"""Fingerprint: a 64-bit number that identifies weights exactly, wherever they are (docs/design.md, section 8).

For a tensor with bytes (C order, zero-padded to 4) read as little-endian uint32 words w_j, all modulo 2^64:

    f = sum_j w_j * (2j + 1) * K  =  K * (2 * S1 + S0),    S0 = sum_j w_j,  S1 = sum_j j * w_j
    F = sum over the tensors of a checkpoint of f * (1 | the first 8 bytes, little-endian, of BLAKE2b-256(name))

Integer sums do not depend on order, device or threads. Not a cryptographic hash: it finds accidents, not forgeries.
Files are read without torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apollod.errors import CheckpointError
from apollod.store.fingerprint import share, sums
from apollod.trainer.kernels.passes import compiled_passes

if TYPE_CHECKING:
    import torch

_K = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_NOTHING = np.empty(0, np.uint8)


def tensor_fingerprint(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> int:
    """f of a tensor of any shape, dtype and device. `dtype`: that of the checkpoint, if memory holds a wider one."""
    import torch

    plain = tensor.is_cpu and dtype in (None, tensor.dtype) and tensor.is_contiguous() and not tensor.nbytes % 4
    if plain and (compiled := compiled_passes()) is not None:
        s0, s1 = compiled.fingerprint_sums_at(tensor.data_ptr(), tensor.nbytes // 4)  # a step asks for many small ones
        return _finish(int(s0), int(s1), tensor.nbytes, _NOTHING)
    if tensor.is_cuda:
        from apollod.trainer.bind.device_fingerprint import DeviceFingerprint, Share

        return DeviceFingerprint([Share(tensor, dtype or tensor.dtype, _K)], on_triton()).queue()()
    flat = tensor.detach().to(dtype=dtype or tensor.dtype).contiguous().view(-1).view(torch.uint8)
    return bytes_fingerprint(flat.cpu().numpy())


def bytes_fingerprint(data: np.ndarray[Any, Any]) -> int:
    """f of a contiguous uint8 array."""
    whole = data.size // 4 * 4
    return _finish(*_sums(data[:whole].view("<u4")), whole, data[whole:])


def part_fingerprint(offset: int, data: np.ndarray[Any, Any]) -> int:
    """The part of a tensor's f from contiguous uint8 bytes that begin at `offset`, a multiple of 4."""
    whole = data.size // 4 * 4
    s0, s1 = _sums(data[:whole].view("<u4"))
    return _finish(s0, s1 + offset // 4 * s0, whole, data[whole:], offset // 4)


def _finish(s0: int, s1: int, whole: int, rest: np.ndarray[Any, Any], first: int = 0) -> int:
    """f from the sums over `whole` bytes, which begin at word `first`, and the up to three bytes after them."""
    tail = int.from_bytes(rest.tobytes(), "little")
    return _K * (2 * (s1 + (first + whole // 4) * tail) + s0 + tail) & _MASK


_triton: bool | None = None
"""use Triton for sums on a GPU; None: if it is installed"""


def use_triton(wanted: bool) -> None:
    """Choose Triton or torch (in several passes) for sums on a GPU. The sums are the same."""
    global _triton
    _triton = wanted


def on_triton() -> bool:
    """True if sums on a GPU use Triton."""
    return find_spec("triton") is not None if _triton is None else _triton


def _sums(words: np.ndarray[Any, Any]) -> tuple[int, int]:
    """(S0, S1) of uint32 words."""
    if (compiled := compiled_passes()) is not None:
        s0, s1 = compiled.fingerprint_sums(words)
        return int(s0), int(s1)
    return sums(words)


def factor(name: str) -> int:
    """The factor of 2 S1 + S0 of tensor `name` in the model's sum, modulo 2^64."""
    return share(name, _K) & _MASK


def combine(name: str, fingerprint: int) -> int:
    """The contribution of tensor `name` with fingerprint f to the model's sum."""
    return share(name, fingerprint) & _MASK


def model_fingerprint(items: Iterable[tuple[str, int]]) -> int:
    """F from (checkpoint name, tensor fingerprint) pairs, in any order; a tied tensor once, under its stored name."""
    return sum(combine(name, fingerprint) for name, fingerprint in items) & _MASK


def format(fingerprint: int) -> str:
    """The fingerprint as 16 hex digits."""
    return f"{fingerprint:016x}"


def file_tensor_fingerprints(path: str | Path) -> dict[str, int]:
    """f of every tensor in a safetensors file, read through a memory map.

    Raises CheckpointError if the file is truncated or its header is invalid, and OSError if it cannot be opened.
    """
    path = Path(path)
    size = path.stat().st_size
    if size < 8:
        raise _damaged(path, f"it has {size} bytes")
    # A private mapping: nothing is written, but numba would compile once more for memory marked read-only.
    data = np.memmap(path, np.uint8, "c").view(np.ndarray)
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    if start > size:
        raise _damaged(path, f"a header of {start - 8} bytes in a file of {size}")
    result = {}
    for name, (begin, end) in _spans(path, data[8:start].tobytes()).items():
        if not 0 <= begin <= end <= size - start:
            raise _damaged(path, f"{name} is at bytes {begin} to {end} of {size - start}")
        result[name] = bytes_fingerprint(data[start + begin : start + end])
    return result


def _spans(path: Path, header: bytes) -> dict[str, tuple[int, int]]:
    """{tensor name: (begin, end)} from a safetensors header, relative to its end."""
    try:
        entries = {name: entry["data_offsets"] for name, entry in json.loads(header).items() if name != "__metadata__"}
        return {name: (int(begin), int(end)) for name, (begin, end) in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"unreadable header ({error})") from error


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} is not a whole safetensors file: {reason}")


def file_fingerprint(path: str | Path) -> int:
    """F of one safetensors file. The shards of a checkpoint add up modulo 2^64. Errors as
    `file_tensor_fingerprints`."""
    return model_fingerprint(file_tensor_fingerprints(path).items())
