"""Load format `apollod`: vLLM's own loader, into shared memory, recording the destination of everything."""

import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import vllm
from torch import nn
from vllm.config import ModelConfig, VllmConfig
from vllm.config.load import LoadConfig
from vllm.logger import init_logger
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.platforms import current_platform

from apollod.adapters.ipc.channel import Link
from apollod.engine import refusals
from apollod.engine.load import cpu_layers, shared_parameters
from apollod.engine.load.recorder import Recorder
from apollod.engine.load.verification import Derived, Verifier
from apollod.errors import ModelRefused, ShareRefused
from apollod.failpoints import failpoint
from apollod.wire.manifest import Manifest
from apollod.wire.messages import Hello, Loaded, LoadRefused

logger = init_logger("vllm.apollod")


@dataclasses.dataclass(frozen=True)
class Shared:
    """Kept on the model as `model.apollod`, for as long as it serves.

    The open `link` shows the supervisor that this worker lives; `placement` keeps the mapping.
    """

    link: Link
    placement: shared_parameters.Placement
    derived: tuple[Derived, ...]
    manifest: Manifest
    addresses: dict[str, int]
    """parameter name -> its data pointer while it serves"""


class SharedLoader(DefaultModelLoader):
    """Loads the target model into memory shared with the trainer; a draft model in vLLM's way.

    Talks to the supervisor at APOLLOD_SOCKET: Hello, Reserve -> Share (CPU), then Loaded, or LoadRefused before the
    error. Source: vllm/model_executor/model_loader/default_loader.py and base_loader.py, 0.26 to 0.32.
    """

    def __init__(self, load_config: LoadConfig) -> None:
        # Never change `load_config`: vLLM 0.32 builds the loader twice from it on CUDA, and would find our name gone.
        super().__init__(dataclasses.replace(load_config, load_format="safetensors"))
        self._link: Link | None = None
        self._placement: shared_parameters.Placement | None = None
        self._recorder: Recorder | None = None

    def load_model(self, vllm_config: VllmConfig, model_config: ModelConfig, prefix: str = "") -> nn.Module:
        """Load, verify, report. Raises ModelRefused for a model that cannot be shared, after telling the supervisor."""
        if model_config.runner_type == "draft":
            # Speculative decoding: a second model through the same load format. A stale draft only costs acceptance.
            draft: nn.Module = DefaultModelLoader(self.load_config).load_model(vllm_config, model_config, prefix)
            return draft
        started = time.monotonic()
        self._link = Link.connect(os.environ["APOLLOD_SOCKET"])
        self._link.send(
            Hello("engine-worker", os.getpid(), versions={"vllm": vllm.__version__, "torch": str(torch.__version__)})
        )
        try:
            refusals.check_config(vllm_config, model_config)
            model: nn.Module = super().load_model(vllm_config, model_config, prefix)
            manifest = self._share(model, Path(model_config.model))
        except (ModelRefused, ShareRefused) as refused:
            self._link.send(LoadRefused(str(refused), refused.hint))
            raise
        failpoint("engine.weights-loaded")
        self._link.send(Loaded(manifest, time.monotonic() - started))
        return model

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        """Called by `load_model` between creating the model and post-processing it; refuses any later call."""
        if self._link is None or self._recorder is not None:
            raise ModelRefused(
                "weights were to be loaded again over those that are being trained",
                "bring back a checkpoint through apollod, not through vLLM's weight reloading",
            )
        refusals.check_experts(model)
        on_cpu = current_platform.is_cpu()
        self._placement = (
            shared_parameters.place_cpu(model, self._link.reserve) if on_cpu else shared_parameters.place_cuda(model)
        )
        self._recorder = Recorder(self._placement.regions)
        with self._recorder:
            super().load_weights(model, model_config)
        if on_cpu:
            cpu_layers.keep_plain(model)
            cpu_layers.accept_one_token()

    def get_all_weights(self, model_config: ModelConfig, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:  # type: ignore[override]
        """vLLM's iterator over the checkpoint, each tensor announced to the recorder."""
        assert self._recorder is not None
        for name, tensor in super().get_all_weights(model_config, model):
            self._recorder.tag(name, tensor)
            yield name, tensor

    def _share(self, model: nn.Module, model_dir: Path) -> Manifest:
        """Verify the loaded model and attach to it everything that must live as long."""
        assert self._link is not None and self._placement is not None and self._recorder is not None
        verifier = Verifier(model, self._placement, self._recorder)
        manifest = verifier.manifest(model_dir)
        self._recorder.release()
        counts = {status: manifest.count(status) for status in ("live", "cast", "rederive", "frozen")}
        logger.info("apollod shares %s of %d tensors", counts, len(manifest.tensors))
        reasons: dict[str, list[str]] = {}
        for entry in manifest.tensors:
            if entry.status == "frozen":
                reasons.setdefault(entry.reason, []).append(entry.name)
        for reason, names in reasons.items():
            logger.warning("apollod will not train %d tensors (%s ...): %s", len(names), names[0], reason)
        if counts["frozen"] == len(manifest.tensors):
            raise ModelRefused(
                f"no tensor of this model can be shared: {manifest.tensors[0].reason}",
                "report this model's architecture",
            )
        addresses = {name: p.data_ptr() for name, p in model.named_parameters(remove_duplicate=False)}
        shared: Any = Shared(self._link, self._placement, tuple(verifier.derived), manifest, addresses)
        model.apollod = shared
        return manifest
