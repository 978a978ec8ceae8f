"""Streams tensors to a file through little host memory: a part at a time, on any device and of any size."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from apollod.store.block_hash import Array
from apollod.trainer.kernels.device_to_host import in_host_memory

PART_BYTES = 16 << 20

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""names of dtypes in safetensors"""


def host_parts(tensor: Tensor, dtype: torch.dtype) -> Iterator[Array]:
    """The elements as `dtype` in C order: uint8 [at most PART_BYTES], one after another. Views on CPU if dtype and
    layout allow."""
    size = tensor.numel() * dtype.itemsize
    if size <= PART_BYTES:
        if size:
            yield _bytes(tensor, dtype)
        return
    rows = tensor.reshape(-1) if tensor.is_contiguous() else tensor
    count = max(1, PART_BYTES // (size // rows.shape[0]))
    for first in range(0, rows.shape[0], count):
        part = rows[first : first + count]
        yield from host_parts(part[0] if count == 1 else part, dtype)


def _bytes(tensor: Tensor, dtype: torch.dtype) -> Array:
    data: Array = in_host_memory(tensor.detach(), dtype).reshape(-1).view(torch.uint8).numpy()
    return data


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file (github.com/huggingface/safetensors, "Format"). Wide elements come first, so that all
    are aligned. `safetensors.torch.save_file` would hold all of them a second time."""
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header, end = {}, 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            for part in host_parts(tensors[name], tensors[name].dtype):
                file.write(part.data)
