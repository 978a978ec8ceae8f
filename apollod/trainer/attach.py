"""Bind a Hugging Face model to the engine's memory.

The model is built on the meta device (no weights), then every parameter is replaced by a view. Ties are taken from the
manifest, not from the Hugging Face config: vLLM unties a head that the checkpoint stores apart, whatever the config says.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from apollod.errors import ModelRefused, ShareRefused
from apollod.trainer.memory import view_of
from apollod.trainer.model_dir import ModelDir
from apollod.trainer.weights import Weights
from apollod.wire.manifest import Manifest

NAMES_SHOWN = 3  # of the parameters that a refusal is about

TEXT_PREFIX = re.compile(r"^model\.language_model\.")
"""Where a multimodal checkpoint keeps its text model; the text-only class calls the same thing `model.`."""


@dataclass(frozen=True)
class Attached:
    """A model whose parameters are the engine's memory.

    `trainable`: (checkpoint name, parameter), a tied one once, in the model's order. `round_to`: the narrower dtype
    that an update of a `cast` parameter has to be rounded to.
    """

    model: PreTrainedModel
    weights: Weights
    trainable: tuple[tuple[str, torch.nn.Parameter], ...]
    round_to: dict[str, torch.dtype]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.trainable[0][1].device


def attach(manifest: Manifest, memory: list[torch.Tensor], fresh: bool, checkpointing: bool) -> Attached:
    """Build the model of `manifest.model_dir` on views of `memory` (uint8 [bytes], one a storage).

    `fresh`: the views must equal the files bit for bit. `checkpointing`: recompute layers in the backward pass.
    Raises ShareRefused, naming parameters, where model, memory and files do not fit each other; ModelRefused for a
    directory that cannot be read.
    """
    manifest.check()
    if len(memory) != len(manifest.storages):
        raise ShareRefused(f"{len(manifest.storages)} storages are announced, {len(memory)} came", "engine and trainer must be of one version")
    entries = {t.name: t for t in manifest.tensors}
    views = {name: view_of(memory[t.storage], t) for name, t in entries.items() if t.status != "frozen"}
    weights = Weights(ModelDir.open(Path(manifest.model_dir)), views, manifest.tied)
    if fresh and (names := weights.differing()):
        raise ShareRefused(f"in memory {_some(names)} differ from the files of {manifest.model_dir}", "restart the engine")

    device = next(iter(views.values())).device if views else torch.device("cpu")
    model = _build(manifest.model_dir, device, checkpointing)
    trainable = _bind(model, weights, manifest)
    if not trainable:
        raise ShareRefused("no parameter of the model is shared", "start the engine with --load-format apollod")
    wide = {name: getattr(torch, entries[name].stored_dtype) for name, _ in trainable if entries[name].dtype != entries[name].stored_dtype}
    return Attached(model, weights, trainable, wide)


def _build(model_dir: str, device: torch.device, checkpointing: bool) -> PreTrainedModel:
    """The text model with parameters on the meta device, buffers on `device`, deterministic."""
    try:
        config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
        _disable_dropout(config)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise ModelRefused(f"transformers cannot build the model of {model_dir} ({error})", "use a causal language model") from error
    _rebuild_buffers(model, device)
    model.eval()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for module in model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = True  # they look at it; all other modules stay in eval mode
    return model


def _disable_dropout(config: PretrainedConfig) -> None:
    """Zero every dropout rate of the config and its parts: a step is a function of weights and example only."""
    for key, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            _disable_dropout(value)
        elif isinstance(value, float) and re.search(r"dropout|_drop$|pdrop", key):
            setattr(config, key, 0.0)


def _rebuild_buffers(model: PreTrainedModel, device: torch.device) -> None:
    """Compute what no checkpoint stores (rotary frequencies, embedding scales) by the model's own initialisation.

    Runs while all parameters are still on the meta device, where initialising them touches nothing.
    """
    with torch.no_grad():
        for module in model.modules():
            for leaf, buffer in module._buffers.items():
                if buffer is not None and buffer.is_meta:
                    module._buffers[leaf] = _poison(buffer.shape, buffer.dtype, device)
                    module._is_hf_initialized = False  # type: ignore[assignment]  # have it initialised again
    model.initialize_weights()
    for name, buffer in model.named_buffers():
        if buffer.numel() and bool((buffer.isnan() if buffer.is_floating_point() else buffer == _poison((), buffer.dtype, device)).any()):
            raise ShareRefused(f"the buffer {name} cannot be computed from the config", "report this model's architecture")


def _poison(shape: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of a value that no initialisation leaves behind."""
    value: float | int = float("nan") if dtype.is_floating_point else 1 if dtype == torch.bool else torch.iinfo(dtype).min
    return torch.full(shape, value, dtype=dtype, device=device)


def _bind(model: PreTrainedModel, weights: Weights, manifest: Manifest) -> tuple[tuple[str, torch.nn.Parameter], ...]:
    """Replace every parameter of the model; (checkpoint name, parameter) of the trained ones."""
    frozen = {t.name for t in manifest.tensors if t.status == "frozen"}
    stored = {TEXT_PREFIX.sub("model.", name): name for name in weights.source.tensors}
    for alias, name in manifest.tied.items():
        stored[TEXT_PREFIX.sub("model.", alias)] = name
    wanted = dict(model.named_parameters(remove_duplicate=False))
    ignored = [re.compile(pattern) for pattern in model._keys_to_ignore_on_load_unexpected or ()]
    unknown = [
        name for hf_name, name in stored.items() if hf_name not in wanted and name in weights.views and not any(p.search(name) for p in ignored)
    ]
    if unknown:
        raise ShareRefused(f"Hugging Face's {type(model).__name__} has no {_some(unknown)}", "report this model's architecture")
    missing = [hf for hf in wanted if stored.get(hf) not in weights.views and stored.get(hf) not in frozen]
    if missing:
        raise ShareRefused(f"the engine does not share {_some(missing)}", "report this model's architecture")

    bound: dict[str, torch.nn.Parameter] = {}
    for hf_name, meta in wanted.items():
        name = stored[hf_name]
        if name not in bound:
            tensor = weights.views[name] if name in weights.views else weights.read(name)
            bound[name] = torch.nn.Parameter(tensor, requires_grad=name not in frozen and tensor.is_floating_point())
        if bound[name].shape != meta.shape:
            raise ShareRefused(
                f"{name} has shape {list(bound[name].shape)}, Hugging Face's {hf_name} {list(meta.shape)}", "report this model's architecture"
            )
        module, _, leaf = hf_name.rpartition(".")
        model.get_submodule(module)._parameters[leaf] = bound[name]
    return tuple((name, p) for name, p in bound.items() if p.requires_grad)


def _some(names: list[str]) -> str:
    rest = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
