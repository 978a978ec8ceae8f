"""Chooses the kernels that update the weights on a GPU: Triton's, or plain torch ("eager"). Decided once, when weights
are attached.

Both follow the same formulas, but with different bits (see kernels_cuda.py), so the choice is recorded with the binding
and a replay uses the recorded one. On a CPU there is no choice: the compiled passes there have the eager bits.
"""

from __future__ import annotations

import sys
from importlib import import_module

import torch

from apollod.explain import line_of
from apollod.trainer.bind import live_fingerprint
from apollod.trainer.bind.device_fingerprint import DeviceFingerprint, Share
from apollod.trainer.optim.optimizer_errors import OptimizerError
from apollod.wire.messages import Kernels

PROBE_WORDS = 4096


def choose(wanted: Kernels, optimizer: str, device: torch.device) -> Kernels:
    """ "triton" if an `optimizer` on this device shall use it, else "eager". From now on, fingerprints are computed
    accordingly.

    Raises OptimizerError if Triton is required and cannot run; "auto" reports the reason on standard error instead.
    """
    live_fingerprint.use_triton(False)
    if wanted == "triton" and optimizer != "apollo":
        raise OptimizerError(f"{optimizer} has no Triton kernels", 'set [trainer] kernels = "auto"')
    if wanted == "eager" or (device.type != "cuda" and wanted == "auto"):
        return "eager"
    if why_not := _why_not(device):
        return give_up(wanted, why_not)
    live_fingerprint.use_triton(device.type == "cuda")
    return "triton" if optimizer == "apollo" else "eager"


def give_up(wanted: Kernels, why: str) -> Kernels:
    """ "eager", reporting the reason; raises OptimizerError if Triton is required."""
    if wanted == "triton":
        raise OptimizerError(f"Triton's kernels cannot run: {why}", 'set [trainer] kernels = "auto", or "eager"')
    live_fingerprint.use_triton(False)
    sys.stderr.write(f"apollod trainer: the optimizer runs in plain torch, without Triton's kernels: {why}\n")
    return "eager"


def _why_not(device: torch.device) -> str:
    """The reason why Triton cannot compile and run a kernel here; empty if it can."""
    try:
        import_module("apollod.trainer.optim.backends.apollo_triton").TritonBackend(device)
        share = Share(torch.arange(PROBE_WORDS, dtype=torch.int32, device=device), torch.int32, 1)
        expected, found = (DeviceFingerprint([share], triton).queue()() for triton in (False, True))
    except OptimizerError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - no compiler, no driver, a broken installation: all the same here
        return line_of(error)
    return "" if expected == found else f"it adds up {PROBE_WORDS} numbers to {found}, not {expected}"
