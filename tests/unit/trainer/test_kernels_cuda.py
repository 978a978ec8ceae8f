"""The Triton kernels, as far as a machine without a GPU can prove them: their values in Triton's interpreter, and
what the compiler makes of them for the GPUs that they are meant for."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.effort import cases

from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.open_step import OptimizerError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


@pytest.mark.slow
def test_values_in_the_interpreter() -> None:
    """And steps of the kernels taken back. One process for all files: it takes five seconds to start."""
    files = [str(Path(__file__).with_name(f"interpreted_{name}.py")) for name in ("kernels", "rows", "undo")]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_triton_is_asked_for_where_it_cannot_run() -> None:
    with pytest.raises(OptimizerError, match="no kernels for cpu"):
        Apollo([("w", torch.nn.Parameter(torch.zeros(64, 64)))], kernels="triton")


# --- the compiler's output -------------------------------------------------------------------------------------------

POINTERS = {
    "low_rank": "*fp32", "squares": "*fp64", "totals": "*fp64", "norm": "*fp64", "t": "*i64", "scalars": "*fp64",
    "scales": "*fp64",
    "partials": "*fp64", "result": "*fp64", "master": "*fp32", "m": "*fp32", "v": "*fp32", "numbers": "*i64",
    "table": "*i64", "sums": "*i64", "root": "fp32",
}  # fmt: skip
PRODUCT = {"RANK": 64, "RANK_BLOCK": 64, "BLOCK_C": 64, "BLOCK_K": 64, "INDEXED": False}
STATE = {"RANK": 64, "RANK_BLOCK": 64, "BLOCK_C": 32}
WRITE = {
    "ONE_SCALE": False, "ROUND": 2, "MASTER": False, "BLOCK_M": 16, "BLOCK_N": 256, "INDEXED": False,
}  # fmt: skip
ROWS = {"BY_ROW": True, "INDEXED": True}
BF16, WORDS = {"weight": "*bf16", "gradient": "*bf16"}, {"weight": "*i32", "gradient": "*i32"}
VARIANTS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("project", PRODUCT | {"inner_stride": 1}, BF16),
    ("project", PRODUCT | {"channel_stride": 1}, BF16),
    ("project", PRODUCT | {"inner_stride": 1, "INDEXED": True}, BF16),
    ("moments", STATE | {"rank_stride": 1, "ONE_SCALE": False}, {}),
    ("moments", STATE | {"channel_stride": 1, "ONE_SCALE": True}, {"m": "*bf16", "v": "*bf16"}),
    ("write", WRITE | {"BY_ROW": True, "WORDS": True}, WORDS),
    ("write", WRITE | {"BY_ROW": False, "WORDS": True}, WORDS),
    ("write", WRITE | {"BY_ROW": True, "WORDS": False, "MASTER": True, "ROUND": 1}, BF16),
    ("write", WRITE | ROWS | {"WORDS": True}, WORDS),
    ("close", {"ONE_SCALE": False}, {}),
    ("square_sums", {"BLOCK": 1024}, BF16),
    ("adam", {"ROUND": 2, "MASTER": False, "BLOCK": 1024}, BF16),
    ("close_adam", {}, {}),
    ("weighted_words", {"BLOCK": 1024}, {}),
]


USUAL = {variant[0]: variant for variant in reversed(VARIANTS)}
"""one of each kernel"""
CASES = [(90, *variant) for variant in VARIANTS] + cases(
    [(capability, *USUAL["project"]) for capability in (80, 100)],  # its product is another instruction on each
    [(capability, *variant) for capability in (80, 100) for name, variant in USUAL.items() if name != "project"],
)


@pytest.mark.parametrize(("capability", "name", "constants", "types"), CASES, ids=lambda value: str(value)[:40])
def test_compiles_without_fused_multiply_add_or_atomics(
    capability: int, name: str, constants: dict[str, Any], types: dict[str, str]
) -> None:
    """For compute capability 8.0 (A100), 9.0 (H100) and 10.0 (B200). One rounding instead of two, an approximate
    root or quotient, or an order that the hardware chooses would each give bits that no oracle has."""
    ptx = compile_kernel(name, constants, types, capability)
    assert re.search(rf"^\.target sm_{capability}a?$", ptx, re.MULTILINE)
    assert not re.findall(r"\bfma\S*\.f(?:32|64)", strip_library(ptx))
    assert not re.findall(r"\b(?:sqrt|div|rcp)\.(?:approx|full)\S*f32", ptx)
    assert not re.findall(r"\b(?:atom|red)\.", ptx)


def compile_kernel(name: str, constants: dict[str, Any], types: dict[str, str], capability: int) -> str:
    import triton.language as tl
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from apollod.trainer.kernels import fingerprint_triton, kernels_cuda

    kernel = getattr(kernels_cuda, name, None) or getattr(fingerprint_triton, name)
    constants = constants | ({"OPERAND": tl.bfloat16} if name == "project" else {})
    signature = {
        arg: "constexpr" if arg in constants else (POINTERS | types).get(arg, "i32") for arg in kernel.arg_names
    }
    aligned = {
        (i,): [["tt.divisibility", 16]] for i, arg in enumerate(kernel.arg_names) if signature[arg].startswith("*")
    }
    by_place = {(kernel.arg_names.index(arg),): value for arg, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=by_place, attrs=aligned)
    compiled = triton_compile(source, target=GPUTarget("cuda", capability, 32), options=kernels_cuda.UNFUSED)
    return str(compiled.asm["ptx"])


def strip_library(ptx: str) -> str:
    """Without float64 multiply-adds that libdevice's exponential asks for by name."""
    return "\n".join(line for line in ptx.splitlines() if "fma.rn.f64" not in line)
