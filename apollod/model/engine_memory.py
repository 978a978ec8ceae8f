"""Reads the arguments of vLLM, and estimates its GPU memory besides weights and KV cache from them. Pure.

From vLLM's sources (0.26 to 0.32), not measured on a GPU. Before it allocates its KV cache it runs the largest batch
once: `--max-num-batched-tokens` b through the layers, then `--max-num-seqs` s through the sampler, h and i elements
wide:

    layers    b (12 h + 6 i)    residual, norms and attention; gate and up, and their product
    sampler   26 s vocabulary   logits in bf16 and float32; sorted values, their indices, probabilities and their sums
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30
CUDA_CONTEXT = 600_000_000
"""bytes of one process, with the libraries that it loads"""
CUDA_GRAPHS = 2_000_000_000

DRIVER = 1 << 30
"""unusable part of a GPU's total in nvidia-smi: torch finds 79.11 GiB of the 81559 MiB of an H100 (vLLM's issue
27508), 14.75 GiB of the 15360 MiB of a T4, 31.37 of the 32607 MiB of an RTX 5090: 0.25 to 0.55 GiB less"""
CUBLAS = 2 * (32 << 20)
"""bytes of one process: the workspaces of cuBLAS and of cuBLASLt on a Hopper, less elsewhere (PyTorch,
ATen/cuda/CUDABlas.cpp; the trainer's CUBLAS_WORKSPACE_CONFIG :4096:8 is as much)"""
FRAGMENTS = 512 << 20
"""bytes of one process: unused memory in torch's allocator. It allocates 20 MiB at once for sizes below 10, and
multiples of 2 MiB otherwise (PyTorch, notes/cuda, "Memory management"); vLLM was seen with 331 MiB (issue 27508), and
reserves 150 itself (v1/worker/gpu_worker.py)"""
SLACK = DRIVER + 2 * (CUBLAS + FRAGMENTS)
"""unplanned bytes of a GPU, for engine and trainer"""

_OVERRIDES = ("hf-overrides", "rope-scaling")
_MULTIPLES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""suffixes as in vLLM (utils/argparse_utils.py, `human_readable_int`)"""
_OWN_SIZES = ("gpu-memory-utilization", "kv-cache-memory-bytes", "num-gpu-blocks-override")


@dataclass(frozen=True)
class EngineAsked:
    """The values of `[engine] args` and `kv_cache_mib`; None if not given."""

    length: int | None = None
    kv: int | None = None
    """bytes of KV cache"""
    share: float | None = None
    """share of the device for the engine's whole memory"""
    batched: int | None = None
    sequences: int | None = None
    sized: bool = False
    """the arguments determine the size of the KV cache"""


def engine_asked(args: Sequence[str], kv_cache_mib: int = 0) -> EngineAsked:
    """Parse the arguments like vLLM: the last one counts."""
    given = _given(args)
    kv = human_number(given.get("kv-cache-memory-bytes", ""))
    share = given.get("gpu-memory-utilization", "")
    sized = any(name in given for name in _OWN_SIZES)
    return EngineAsked(
        length=asked_length(args),
        kv=kv or (None if sized else kv_cache_mib << 20 or None),
        share=float(share) if not kv and _is_share(share) else None,
        batched=human_number(given.get("max-num-batched-tokens", "")),
        sequences=human_number(given.get("max-num-seqs", "")),
        sized=sized,
    )


def asked_length(args: Sequence[str]) -> int | None:
    """`--max-model-len` among the arguments of the engine; None if it is missing, left to vLLM, or if another argument
    changes the model's own length."""
    asked: int | None = None
    for place, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        name = name.removeprefix("--").replace("_", "-")
        if name in _OVERRIDES:
            return None
        if name == "max-model-len":
            asked = human_number(value if equals else (args[place + 1] if place + 1 < len(args) else ""))
    return asked


def human_number(text: str) -> int | None:
    """Parse "8192", "32k" or "1.5G" like vLLM; None for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", text)
    return int(float(found[1]) * _MULTIPLES.get(found[2], 1)) if found else None


def _given(args: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name.startswith("--"):
            following = args[place + 1] if place + 1 < len(args) else ""
            found[name[2:].replace("_", "-")] = value if equals else following
    return found


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def workspace(text: Mapping[str, Any], asked: EngineAsked, device: int) -> int:
    """Bytes on a GPU of `device` bytes: context, graphs, and the larger of both runs above."""
    batched, sequences = _batch(device)
    layers = (asked.batched or batched) * (12 * text["hidden_size"] + 6 * text["intermediate_size"])
    sampler = (asked.sequences or sequences) * 26 * text["vocab_size"]
    return int(CUDA_CONTEXT + CUDA_GRAPHS + max(layers, sampler))


def _batch(device: int) -> tuple[int, int]:
    """vLLM's defaults for tokens and sequences of a batch (engine/arg_utils.py)."""
    if device >= 160 * GIB:
        return 16384, 1024
    return (8192, 1024) if device >= 70 * GIB else (2048, 256)
