"""Facts about this machine's hardware: its kind of processor and matrix instructions; its memory, of the GPU as
`nvidia-smi` reports it, and of the host, within the limits of its control groups. Loads neither torch nor CUDA, since
commands use it, too."""

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from apollod.core.settings import ProductsDtype

Kind = Literal["amx_bf16", "avx512_bf16", "avx512", "avx2", "arm_bf16", "arm", "other"]
"""Kinds by which torch and vLLM choose their kernels; the last three x86 ones have no bf16 instructions."""

BF16_FLAGS: dict[Kind, str] = {"amx_bf16": "amx_bf16", "avx512_bf16": "avx512_bf16", "arm_bf16": "bf16"}
_FLAGS: dict[Kind, str] = {**BF16_FLAGS, "avx512": "avx512f", "avx2": "avx2", "arm": "asimd"}
"""kind -> its flag in /proc/cpuinfo, the most capable first"""
ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Environment variables of oneDNN, torch's library for products; the first one that is set counts."""
_WITHOUT_AVX512 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2")
_WITHOUT_BF16 = (*_WITHOUT_AVX512, "AVX512_CORE", "AVX512_CORE_VNNI")
NVIDIA_SMI_S = 20.0
"""long, because the driver may have to load first"""
MIB = 1 << 20
PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def processor_kind(cpuinfo: str | None = None, environ: Mapping[str, str] = os.environ) -> Kind:
    """Kind of this processor, without instructions that oneDNN must not use.

    cpuinfo  the text of /proc/cpuinfo, which is read if it is not given
    """
    text = _cpuinfo() if cpuinfo is None else cpuinfo
    flags = next((line.split() for line in text.splitlines() if line.startswith(("flags", "Features"))), [])
    limit = next((environ[name].upper() for name in ISA_LIMITS if name in environ), "")
    left: set[Kind] = set()
    if limit in _WITHOUT_BF16:
        left = {*BF16_FLAGS} | ({"avx512"} if limit in _WITHOUT_AVX512 else set())
    return next((kind for kind, flag in _FLAGS.items() if flag in flags and kind not in left), "other")


@cache
def _cpuinfo() -> str:
    return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")


def bf16_instructions(cpuinfo: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Instructions for products of bf16 numbers that torch can use here; empty if there are none."""
    return BF16_FLAGS.get(processor_kind(cpuinfo, environ), "")


def products_dtype(wanted: Literal["auto", "bf16", "float32"]) -> ProductsDtype:
    """Number format in which this processor multiplies bf16 matrices, by `[trainer] products`."""
    if wanted == "auto":
        return "bf16" if bf16_instructions() else "float32"
    return wanted


def device_bytes() -> int | None:
    """Memory of CUDA's first GPU (CUDA_VISIBLE_DEVICES); None if `nvidia-smi` does not report it. Blocking."""
    return _device("memory.total")


def device_free_bytes() -> int | None:
    """Unused part of that memory."""
    return _device("memory.free")


def _device(field: str) -> int | None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", f"--id={visible or 0}"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True).stdout
        return int(told.split()[0]) * MIB
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def host_bytes() -> int:
    """All memory available to the processes of this machine, or of this control group."""
    return min([_meminfo("MemTotal"), *(limit for limit, _ in _limits())])


def host_free_bytes() -> int:
    """Part of that memory that can be allocated without swapping."""
    return min([_meminfo("MemAvailable"), *(max(0, limit - used) for limit, used in _limits())])


def _meminfo(field: str) -> int:
    lines = (PROC / "meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def _limits() -> list[tuple[int, int]]:
    """(limit, use without memory that the kernel can drop) of our control group (version 2) and its ancestors that have
    a limit."""
    try:
        own = (PROC / "self" / "cgroup").read_text().split("0::", 1)[1].split("\n", 1)[0].lstrip("/")
    except (OSError, IndexError):
        return []
    found = []
    for group in (CGROUP / own, *(CGROUP / own).parents):
        try:
            limit, used = (group / "memory.max").read_text(), int((group / "memory.current").read_text())
            if limit.strip() != "max":
                found.append((int(limit), used - _droppable(group)))
        except (OSError, ValueError):
            continue
    return found


def _droppable(group: Path) -> int:
    lines = (group / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
