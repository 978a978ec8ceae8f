"""Compares tensors bit for bit, and reads the checkpoint's own tensors for comparison."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WIDER = {
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.float32),
    (torch.bfloat16, torch.float64),
    (torch.float16, torch.float64),
    (torch.float32, torch.float64),
}


def equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True for the same shape, dtype and bits. `torch.equal` would take bf16 for fp32, -0.0 for 0.0, and no NaN for
    itself."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    integer = _INTEGER[a.element_size()]
    return torch.equal(a.view(integer), b.view(integer))


def exact_upcast(stored: torch.dtype, held: torch.dtype) -> bool:
    """True if every value of `stored` is a value of `held`, a wider floating-point dtype."""
    return (stored, held) in _WIDER


def checkpoint_tensors(model_dir: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of a Hugging Face directory, each name once: by the index if there is one, else every file."""
    index = model_dir / "model.safetensors.index.json"
    if index.is_file():
        where: dict[str, str] = json.loads(index.read_text())["weight_map"]
        files: dict[str, list[str] | None] = {
            file: [n for n, f in where.items() if f == file] for file in sorted(set(where.values()))
        }
    else:
        files = {path.name: None for path in sorted(model_dir.glob("*.safetensors"))}
    for file, names in files.items():
        with safe_open(model_dir / file, framework="pt") as opened:
            for name in names or opened.keys():
                yield name, opened.get_tensor(name)
