"""Describes what the trainer computes with: versions and devices, recorded with every binding and compared when replays
differ; and chooses kernels and products, once, when weights are attached.

Triton's kernels or plain torch ("eager") update the weights on a GPU. Both follow the same formulas, but with different
bits (see kernels_cuda.py), so the choice is recorded with the binding and a replay uses the recorded one. A CPU leaves
no choice: the compiled passes there have the eager bits.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import torch

from apollod.adapters.system.hardware import products_dtype
from apollod.core.settings import Kernels, Products, ProductsDtype
from apollod.explain import line_of
from apollod.trainer.bind import live_fingerprint
from apollod.trainer.bind.live_fingerprint import DeviceFingerprint, Share
from apollod.trainer.optim.open_step import OptimizerError
from apollod.trainer.optim.optimizers import OPTIMIZERS

LIBRARIES = ("torch", "transformers", "tokenizers", "numba")
PROBE_WORDS = 4096


def environment(device: torch.device, kernels: str = "eager", optimizer: str = "apollo") -> dict[str, str]:
    """Versions of libraries, kind of device and of the optimizer's kernels, number of threads. For comparison and for
    people."""
    used = (*LIBRARIES, *(("triton",) if kernels == "triton" else ()), *OPTIMIZERS[optimizer].LIBRARIES)
    found = {name: version(name) for name in used}
    return {**found, "device": _kind(device), "kernels": kernels, "threads": str(torch.get_num_threads())}


def _kind(device: torch.device) -> str:
    """The GPU's name, or "cpu" with the processor's name and the instruction set that torch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return " ".join(f"cpu {model} {torch.backends.cpu.get_cpu_capability()}".split())


def chosen_products(wanted: Products, device: torch.device) -> ProductsDtype:
    """The dtype for products of bf16 matrices. On a GPU always bf16."""
    return "bf16" if device.type == "cuda" else products_dtype(wanted)


def chosen_kernels(wanted: Kernels, optimizer: str, device: torch.device) -> Kernels:
    """ "triton" if an `optimizer` on this device shall use it, else "eager". From now on, fingerprints are computed
    accordingly.

    Raises OptimizerError if Triton is required and cannot run; "auto" reports the reason on standard error instead.
    """
    live_fingerprint.use_triton(False)
    if wanted == "triton" and not OPTIMIZERS[optimizer].KERNELS:
        raise OptimizerError(f"{optimizer} has no Triton kernels", 'set [trainer] kernels = "auto"')
    if wanted == "eager" or (device.type != "cuda" and wanted == "auto"):
        return "eager"
    if why_not := _why_not(device):
        return without_triton(wanted, why_not)
    live_fingerprint.use_triton(device.type == "cuda")
    return "triton" if OPTIMIZERS[optimizer].KERNELS else "eager"


def without_triton(wanted: Kernels, why: str) -> Kernels:
    """ "eager", reporting the reason; raises OptimizerError if Triton is required."""
    if wanted == "triton":
        raise OptimizerError(f"Triton's kernels cannot run: {why}", 'set [trainer] kernels = "auto", or "eager"')
    live_fingerprint.use_triton(False)
    sys.stderr.write(f"apollod trainer: the optimizer runs in plain torch, without Triton's kernels: {why}\n")
    return "eager"


def _why_not(device: torch.device) -> str:
    """The reason why Triton cannot compile and run a kernel here; empty if it can."""
    try:
        import_module("apollod.trainer.optim.apollo_triton").device_steps(device)
        share = Share(torch.arange(PROBE_WORDS, dtype=torch.int32, device=device), torch.int32, 1)
        expected, found = (DeviceFingerprint([share], triton).queue()() for triton in (False, True))
    except OptimizerError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - no compiler, no driver, a broken installation: all the same here
        return line_of(error)
    return "" if expected == found else f"it adds up {PROBE_WORDS} numbers to {found}, not {expected}"
