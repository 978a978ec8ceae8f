"""Methods added to vLLM's worker by `--worker-extension-cls apollod.engine.worker.WorkerExtension`.

vLLM mixes this class into its worker and refuses attributes that exist already (v1/worker/worker_base.py), hence the
prefix.
"""

from typing import Any

import torch

from apollod.engine.serve.compare import compared, differing


class WorkerExtension:
    """Called through `collective_rpc` by method name, between two model steps."""

    model_runner: Any

    def apollod_rederive(self) -> int:
        """Refresh vLLM's derived copies of shared parameters; returns their number.

        Waits for no device: the trainer has waited for its own writes before it reported the step, and these copies
        precede the engine's next launches on the same stream.
        """
        derived = self.model_runner.get_model().apollod.derived
        for one in derived:
            one.rederive()
        return len(derived)

    def apollod_synchronize(self) -> None:
        """Wait until the device has finished all queued work."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def apollod_compared(self) -> list[str]:
        """Names of the tensors that can differ."""
        return compared(self.model_runner.get_model())

    def apollod_differing(self, names: list[str], digests: dict[str, str]) -> dict[str, str]:
        """Tensors whose bytes do not match the trainer's digests, with the reason: see `compare.differing`."""
        return differing(self.model_runner.get_model(), names, digests)
