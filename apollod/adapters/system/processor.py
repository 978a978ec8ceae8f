"""Detects the kind of processor and its matrix instructions. Without torch, since commands use it, too."""

import os
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
