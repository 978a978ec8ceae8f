"""Methods added to vLLM's worker by `--worker-extension-cls apollod.engine.worker.WorkerExtension`.

vLLM mixes this class into its worker and refuses attributes that exist already (v1/worker/worker_base.py), hence the
prefix.
"""

from typing import Any

import torch

from apollod.engine.serve.compare import differing


class WorkerExtension:
    """Called through `collective_rpc` by method name, between two model steps."""

    model_runner: Any

    def apollod_rederive(self) -> int:
        """Derive again what vLLM holds in another form than the shared memory; returns how many parameters that were.

        On CUDA it also waits for the device, so that what the trainer wrote before is seen by what is launched after.
        """
        convolutions = self.model_runner.get_model().apollod.convolutions
        for convolution in convolutions:
            convolution.rederive()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return len(convolutions)

    def apollod_synchronize(self) -> None:
        """Return when the device has done what it was given."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def apollod_differing(self, digests: dict[str, str]) -> dict[str, str]:
        """Tensors that are not what the trainer's digests say, and why: see `compare.differing`."""
        return differing(self.model_runner.get_model(), digests)
