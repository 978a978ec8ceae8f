"""What this machine's processor can multiply. Without torch: the commands ask, too."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from apollod.core.settings import ProductsDtype

BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")  # two of x86, one of ARM
ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Environment variables of oneDNN, torch's library for products, the first of which counts."""
_WITHOUT_BF16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI")


def bf16_instructions(cpuinfo: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """The instructions for products of bf16 numbers that torch can use here; empty if there are none.

    cpuinfo  the text of /proc/cpuinfo, which is read if it is not given
    """
    limit = next((environ[name].upper() for name in ISA_LIMITS if name in environ), "")
    if limit in _WITHOUT_BF16:
        return ""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace") if cpuinfo is None else cpuinfo
    flags = next((line.split() for line in text.splitlines() if line.startswith(("flags", "Features"))), [])
    return next((flag for flag in BF16_FLAGS if flag in flags), "")


def products_dtype(wanted: Literal["auto", "bf16", "float32"]) -> ProductsDtype:
    """What bf16 matrices are multiplied in on this processor, by `[trainer] products`."""
    if wanted == "auto":
        return "bf16" if bf16_instructions() else "float32"
    return wanted
