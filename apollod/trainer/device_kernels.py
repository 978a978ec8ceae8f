"""Which kernels update the weights on a GPU: Triton's, or plain torch ("eager"). Decided once, when weights are attached.

Both follow the same formulas, but not to the same bits (kernels_cuda.py says where), so the choice is recorded with what is bound
and a replay takes the recorded one. On a CPU there is nothing to choose: the compiled passes there have the eager bits.
"""

from __future__ import annotations

import sys
from importlib import import_module

import torch

from apollod.trainer import fingerprint
from apollod.trainer.named_optimizer import OptimizerError
from apollod.wire.messages import Kernels

PROBE_WORDS = 4096


def choose(wanted: Kernels, optimizer: str, device: torch.device) -> Kernels:
    """"triton" where an `optimizer` on this device shall use it, else "eager". Fingerprints are taken accordingly from here on.

    Raises OptimizerError where Triton is asked for and cannot run; "auto" says why on standard error then.
    """
    fingerprint.use_triton(False)
    if wanted == "triton" and optimizer != "apollo":
        raise OptimizerError(f"{optimizer} has no Triton kernels", 'set [trainer] kernels = "auto"')
    if wanted == "eager" or (device.type != "cuda" and wanted == "auto"):
        return "eager"
    if why_not := _why_not(device):
        return give_up(wanted, why_not)
    fingerprint.use_triton(device.type == "cuda")
    return "triton" if optimizer == "apollo" else "eager"


def give_up(wanted: Kernels, why: str) -> Kernels:
    """"eager", with a line that says why it is not Triton; raises OptimizerError where nothing else will do."""
    if wanted == "triton":
        raise OptimizerError(f"Triton's kernels cannot run: {why}", 'set [trainer] kernels = "auto", or "eager"')
    fingerprint.use_triton(False)
    sys.stderr.write(f"apollod trainer: the optimizer runs in plain torch, without Triton's kernels: {why}\n")
    return "eager"


def _why_not(device: torch.device) -> str:
    """Why Triton cannot compile and run a kernel here; empty where it can."""
    try:
        module = import_module("apollod.trainer.apollo_cuda")
        module.device_steps(device)
        words = torch.arange(PROBE_WORDS, dtype=torch.int32, device=device)
        expected, found = fingerprint.torch_sums(words), module.fingerprint_sums(words)
    except OptimizerError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - no compiler, no driver, a broken installation: all the same here
        return one_line(error)
    return "" if expected == found else f"it adds up {PROBE_WORDS} numbers to {found}, not {expected}"


def one_line(error: Exception) -> str:
    """An exception as a line for people."""
    return " ".join(f"{type(error).__name__}: {error}".split())
