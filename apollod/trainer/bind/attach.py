"""Binds a Hugging Face model to the engine's memory.

The model is built on the meta device (no weights), then every parameter is replaced by a view. Ties are taken from the
manifest, not from the Hugging Face config: vLLM unties a head that the checkpoint stores separately, whatever the
config says.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_layers import GradientCheckpointingLayer

from apollod.errors import ModelRefused, ShareRefused
from apollod.model.decoder import expert_name, is_stack
from apollod.model.selection import TEXT_PREFIX, selected
from apollod.trainer.bind.live_weights import ModelDir, Weights
from apollod.trainer.bind.mapped_memory import view_of
from apollod.wire.manifest import Manifest

# Experts: one tensor [experts, out, in] in transformers' modules; in the checkpoint one matrix each, or such a tensor;
# for the optimizer one matrix each, so that it projects them one by one. All share the engine's memory.
#
# transformers' own way of saving the module tells which rows of its tensor form a checkpoint's matrix: run on row
# numbers, it returns them under the checkpoint's names.

_REPORT = "report this model's architecture"


@dataclass(frozen=True)
class Rows:
    """A tensor of the checkpoint: `count` rows from `first` on of a model's tensor, seen as [rows, columns]."""

    name: str
    first: int
    count: int


def saved_as(model: PreTrainedModel, shapes: Mapping[str, torch.Size]) -> dict[str, list[Rows]]:
    """Names in a checkpoint of parameters of these shapes, and the rows of a stack of experts that each one has, in
    order. A parameter that is not a stack has one name, of one row. Raises ShareRefused if a name is not made of whole
    rows."""
    numbers, starts, end = dict[str, Tensor](), list[int](), 0
    for name, shape in shapes.items():
        starts.append(end)
        rows = shape[0] * shape[1] if is_stack(name, tuple(shape)) else 1
        numbered = torch.arange(end, end + rows)
        numbers[name] = numbered.view(*shape[:2], 1).expand(-1, -1, 2) if rows > 1 else numbered
        end += rows
    found: dict[str, list[Rows]] = {name: [] for name in shapes}
    for stored, numbered in revert_weight_conversion(model, numbers).items():
        rows_of = numbered.reshape(-1, 2)[:, 0] if numbered.shape[-1] == 2 else numbered.reshape(-1)
        first, count = int(rows_of[0]), len(rows_of)
        at = bisect_right(starts, first) - 1
        name = list(shapes)[at]
        if not torch.equal(rows_of, torch.arange(first, first + count)):
            raise ShareRefused(f"{stored} is stored in another order than Hugging Face's {name}", _REPORT)
        found[name].append(Rows(stored, first - starts[at], count))
    return {name: sorted(rows, key=lambda part: part.first) for name, rows in found.items()}


def stack_rows(name: str, shape: torch.Size) -> list[Rows]:
    """Rows of a tensor that the checkpoint stores as a stack, too: one matrix per expert."""
    return [Rows(expert_name(name, number), number * shape[1], shape[1]) for number in range(shape[0])]


def whole(matrices: Mapping[str, Tensor], rows: list[Rows], shape: torch.Size) -> Tensor:
    """The contiguous tensor of this shape whose rows the matrices are. Raises ShareRefused if memory is laid out
    differently."""
    start = matrices[rows[0].name]
    dtype, width = start.dtype, shape[-1]
    for part in rows:
        matrix = matrices[part.name]
        place = start.data_ptr() + (part.first - rows[0].first) * width * dtype.itemsize
        if (matrix.data_ptr(), matrix.dtype) != (place, dtype) or not matrix.is_contiguous():
            raise ShareRefused(
                f"the engine does not hold {part.name} right behind the experts before it",
                'set [engine] args = ["--moe-backend", "triton"]',
            )
        if matrix.numel() != part.count * width:
            raise ShareRefused(f"{part.name} has shape {list(matrix.shape)}", _REPORT)
    if sum(part.count for part in rows) * width != prod(shape):
        raise ShareRefused(f"the experts from {rows[0].name} on do not fill {list(shape)}", _REPORT)
    return start.as_strided(shape, (shape[1] * width, width, 1), start.storage_offset())


def split(module: nn.Module, leaf: str, stack: Tensor, rows: list[Rows]) -> list[nn.Parameter]:
    """Make `stack` the tensor `leaf` of a module of transformers, and return its matrices as parameters, which receive
    the gradient of the tensor."""
    module._parameters[leaf] = nn.Parameter(stack, stack.is_floating_point())
    parametrize.register_parametrization(module, leaf, _Stack(stack, rows), unsafe=True)
    own: Any = module.parametrizations[leaf]  # type: ignore[index]
    return [getattr(own, f"original{number}") for number in range(len(rows))]


class _Stack(nn.Module):
    """A parametrization (torch.nn.utils.parametrize) of a tensor by the matrices that it consists of."""

    def __init__(self, stack: Tensor, rows: list[Rows]) -> None:
        super().__init__()
        self._stack, self._rows = (stack,), rows  # in a tuple, so that it does not become a buffer

    def forward(self, *matrices: Tensor) -> Tensor:
        return _Joined.apply(self._stack[0], self._rows, *matrices)  # type: ignore[no-any-return, no-untyped-call]

    def right_inverse(self, stack: Tensor) -> list[Tensor]:
        """The matrices, by reference."""
        flat = stack.detach().view(-1, stack.shape[-1])
        return [flat[part.first : part.first + part.count] for part in self._rows]


class _Joined(torch.autograd.Function):
    """The stack itself, as a function of its matrices. Nothing is copied; the backward pass splits the gradient."""

    @staticmethod
    def forward(ctx: Any, stack: Tensor, rows: list[Rows], *_matrices: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.rows = rows
        return stack.view_as(stack)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        if gradient is None:
            return (None, None, *(None for _ in ctx.rows))
        out = gradient.shape[1]
        # of one expert each: slices of a gradient that may be laid out in any order
        parts = (gradient[part.first // out, part.first % out : part.first % out + part.count] for part in ctx.rows)
        return (None, None, *parts)


NAMES_SHOWN = 3  # parameter names in an error

_ONE_VERSION = "engine and trainer must be of one version"


@dataclass(frozen=True)
class Attached:
    """A model whose parameters are the engine's memory.

    `shared`: (checkpoint name, parameter) of all trainable ones, a tied one once, in the model's order; a stack of
    experts counts as its matrices, whose names `stack_of` maps to the checkpoint's. `trainable`: the selected ones
    among them. `round_to`: the narrower dtype to which an update of a `cast` parameter is rounded.
    """

    model: PreTrainedModel
    weights: Weights
    shared: tuple[tuple[str, torch.nn.Parameter], ...]
    trainable: tuple[tuple[str, torch.nn.Parameter], ...]
    round_to: dict[str, torch.dtype]
    tied: dict[str, str]
    stack_of: dict[str, str] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.trainable[0][1].device

    def select(self, layers: str, freeze: Iterable[str]) -> "Attached":
        """Train the parameters of `shared` that `[trainer] layers` and `freeze` leave; the rest gets no gradient, and
        the backward pass ends below the lowest trained one. Raises SelectionRefused, with nothing changed."""
        stored = {name: self.stack_of.get(name, name) for name, _ in self.shared}
        known = dict.fromkeys(stored.values())
        names = selected(known, layers, freeze, self.weights.source.tensors, self.tied)
        for name, parameter in self.shared:
            parameter.requires_grad_(stored[name] in names)
        trainable = tuple((name, parameter) for name, parameter in self.shared if stored[name] in names)
        return replace(self, trainable=trainable, round_to=_narrower(self.weights, trainable, self.stack_of))


def attach(manifest: Manifest, memory: list[torch.Tensor], fresh: bool, gradient_checkpointing: bool) -> Attached:
    """Build the model of `manifest.model_dir` on views of `memory` (uint8 [bytes], one per storage).

    `fresh`: the views must equal the files bit for bit. `gradient_checkpointing`: recompute layers in the backward
    pass. Raises ShareRefused, naming parameters, if model, memory and files do not match; ModelRefused for a directory
    that cannot be read.
    """
    manifest.check()
    if len(memory) != len(manifest.storages):
        raise ShareRefused(f"{len(manifest.storages)} storages are announced, {len(memory)} came", _ONE_VERSION)
    entries = {t.name: t for t in manifest.tensors}
    views = {name: view_of(memory[t.storage], t) for name, t in entries.items() if t.status != "frozen"}
    weights = Weights(ModelDir.open(Path(manifest.model_dir)), views, manifest.tied)
    if fresh and (names := weights.differing()):
        raise ShareRefused(
            f"in memory {_some(names)} differ from the files of {manifest.model_dir}", "restart the engine"
        )

    device = next(iter(views.values())).device if views else torch.device("cpu")
    model = _build(manifest.model_dir, device, gradient_checkpointing)
    shared, stack_of = _bind(model, weights, manifest, device)
    if not shared:
        raise ShareRefused("no parameter of the model is shared", "start the engine with --load-format apollod")
    return Attached(model, weights, shared, shared, _narrower(weights, shared, stack_of), manifest.tied, stack_of)


_Trained = tuple[tuple[str, torch.nn.Parameter], ...]


def _narrower(weights: Weights, trainable: _Trained, stack_of: dict[str, str]) -> dict[str, torch.dtype]:
    """Dtype on disk of the parameters that memory holds in another one."""
    files = weights.source.tensors
    stored = {name: getattr(torch, files[stack_of.get(name, name)].dtype) for name, _ in trainable}
    return {name: stored[name] for name, parameter in trainable if parameter.dtype != stored[name]}


def _build(model_dir: str, device: torch.device, gradient_checkpointing: bool) -> PreTrainedModel:
    """The text model with parameters on the meta device, buffers on `device`, deterministic."""
    try:
        config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
        _disable_dropout(config)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, attn_implementation="sdpa"
            )
    except (OSError, ValueError) as error:
        raise ModelRefused(
            f"transformers cannot build the model of {model_dir} ({error})", "use a causal language model"
        ) from error
    _rebuild_buffers(model, device)
    model.eval()  # type: ignore[no-untyped-call]
    if gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for module in model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = True  # they check it; all other modules stay in eval mode
    return model


def _disable_dropout(config: PretrainedConfig) -> None:
    """Zero every dropout rate of the config and its parts: a step is a function of weights and example only."""
    for key, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            _disable_dropout(value)
        elif isinstance(value, float) and re.search(r"dropout|_drop$|pdrop", key):
            setattr(config, key, 0.0)


def _rebuild_buffers(model: PreTrainedModel, device: torch.device) -> None:
    """Compute the buffers that no checkpoint stores (rotary frequencies, embedding scales) by the model's own
    initialisation.

    Runs while all parameters are still on the meta device, where initialising them touches nothing.
    """
    for module in model.modules():
        for leaf, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[leaf] = torch.full(
                    buffer.shape, _unset(buffer.dtype), dtype=buffer.dtype, device=device
                )
                module._is_hf_initialized = False  # type: ignore[assignment]  # initialise it again
    model.initialize_weights()  # type: ignore[no-untyped-call]
    for name, buffer in model.named_buffers():
        left = buffer.isnan() if buffer.is_floating_point() else buffer == _unset(buffer.dtype)
        if buffer.dtype != torch.bool and bool(left.any()):
            raise ShareRefused(f"the buffer {name} cannot be computed from the config", _REPORT)


def _unset(dtype: torch.dtype) -> float | int:
    """A value that no initialisation leaves behind (bool has none to spare)."""
    if dtype.is_floating_point:
        return float("nan")
    return 0 if dtype == torch.bool else torch.iinfo(dtype).min


def _bind(
    model: PreTrainedModel, weights: Weights, manifest: Manifest, device: torch.device
) -> tuple[_Trained, dict[str, str]]:
    """Replace every parameter of the model; returns (checkpoint name, parameter) of the trainable ones, and
    `stack_of`."""
    frozen = {t.name for t in manifest.tensors if t.status == "frozen"}
    stored = {TEXT_PREFIX.sub("model.", name): name for name in weights.source.tensors}
    for alias, name in manifest.tied.items():
        stored[TEXT_PREFIX.sub("model.", alias)] = name
    wanted = dict(model.named_parameters(remove_duplicate=False))
    elsewhere = {hf: p.shape for hf, p in wanted.items() if hf not in stored}
    of_experts: dict[str, list[Rows]] = {}
    for hf_name, rows in saved_as(model, elsewhere).items() if elsewhere else ():
        if is_stack(hf_name, tuple(elsewhere[hf_name])):
            of_experts[hf_name] = [replace(part, name=stored.get(part.name, part.name)) for part in rows]
        elif rows and rows[0].name in stored:  # renamed
            stored[hf_name] = stored.pop(rows[0].name)
    parts = {part.name for rows in of_experts.values() for part in rows}
    ignored = [re.compile(pattern) for pattern in model._keys_to_ignore_on_load_unexpected or ()]
    extra = [
        name
        for hf_name, name in stored.items()
        if hf_name not in wanted and name in weights.views and name not in parts
    ]
    unknown = [name for name in extra if not any(pattern.search(name) for pattern in ignored)]
    if unknown:
        raise ShareRefused(f"Hugging Face's {type(model).__name__} has no {_some(unknown)}", _REPORT)
    held = frozen | weights.views.keys()
    missing = [hf for hf in wanted if hf not in of_experts and stored.get(hf) not in held]
    missing += sorted(parts - weights.views.keys())
    if missing:
        raise ShareRefused(f"the engine does not share {_some(missing)}", _REPORT)

    bound: dict[str, torch.nn.Parameter] = {}
    stack_of: dict[str, str] = {}
    for hf_name, meta in wanted.items():
        module, _, leaf = hf_name.rpartition(".")
        if rows := of_experts.get(hf_name, []):
            stack = whole(weights.views, rows, meta.shape)
            matrices = split(model.get_submodule(module), leaf, stack, rows)
            bound |= {part.name: matrix for part, matrix in zip(rows, matrices, strict=True)}
            continue
        name = stored[hf_name]
        if name not in bound:
            tensor = weights.views[name] if name in weights.views else weights.read(name).to(device)
            bound[name] = torch.nn.Parameter(tensor, requires_grad=name not in frozen and tensor.is_floating_point())
        if bound[name].shape != meta.shape:
            shape = list(bound[name].shape)
            raise ShareRefused(f"{name} has shape {shape}, Hugging Face's {hf_name} {list(meta.shape)}", _REPORT)
        if name in weights.views and is_stack(hf_name, tuple(meta.shape)):
            rows = stack_rows(name, meta.shape)
            matrices = split(model.get_submodule(module), leaf, bound.pop(name).data, rows)
            bound |= {part.name: matrix for part, matrix in zip(rows, matrices, strict=True)}
            stack_of |= {part.name: name for part in rows}
            continue
        model.get_submodule(module)._parameters[leaf] = bound[name]
    return tuple((name, p) for name, p in bound.items() if p.requires_grad), stack_of


def _some(names: list[str]) -> str:
    rest = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
