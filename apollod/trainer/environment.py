"""Describes the environment of this process: recorded with every binding, and compared when replays differ."""

from importlib.metadata import version
from pathlib import Path

import torch

from apollod.adapters.system.hardware import products_dtype
from apollod.core.settings import Products, ProductsDtype

LIBRARIES = ("torch", "transformers", "tokenizers", "numba")


def environment(device: torch.device, kernels: str = "eager", optimizer: str = "apollo") -> dict[str, str]:
    """Versions of libraries, kind of device and of the optimizer's kernels, number of threads. For comparison and for
    people."""
    used = {"triton": kernels == "triton", "bitsandbytes": optimizer == "adamw8bit"}
    found = {name: version(name) for name in (*LIBRARIES, *filter(used.get, used))}
    return {**found, "device": _kind(device), "kernels": kernels, "threads": str(torch.get_num_threads())}


def chosen_products(wanted: Products, device: torch.device) -> ProductsDtype:
    """The dtype for products of bf16 matrices. On a GPU always bf16."""
    return "bf16" if device.type == "cuda" else products_dtype(wanted)


def _kind(device: torch.device) -> str:
    """The GPU's name, or "cpu" with the processor's name and the instruction set that torch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return " ".join(f"cpu {model} {torch.backends.cpu.get_cpu_capability()}".split())
