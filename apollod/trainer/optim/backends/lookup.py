"""Finds the Triton back end, if requested; Triton is imported only then."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import torch

from apollod.trainer.optim.backends.backend import Backend
from apollod.trainer.optim.optimizer_errors import OptimizerError
from apollod.wire.messages import Kernels


def triton_backend(kernels: Kernels, device: torch.device) -> Backend | None:
    """APOLLO's updates in Triton; None if `kernels` and the device call for the formulas. Raises OptimizerError if
    Triton is required and cannot be used."""
    if kernels == "eager" or (kernels == "auto" and (device.type != "cuda" or find_spec("triton") is None)):
        return None
    try:
        make: Callable[[torch.device], Backend] = import_module(
            "apollod.trainer.optim.backends.apollo_triton"
        ).TritonBackend
    except ImportError as error:
        raise OptimizerError(
            f"Triton cannot be imported ({error})", 'run `pip install triton`, or choose kernels = "eager"'
        ) from error
    return make(device)
