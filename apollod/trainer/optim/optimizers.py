"""The optimizers that a configuration can name, all behind `NamedOptimizer`."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from apollod.trainer.optim.adafactor import Adafactor
from apollod.trainer.optim.adamw import AdamW, AdamW8bit
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.optimizer_errors import OptimizerError
from apollod.trainer.optim.projector import summed_dim
from apollod.wire.messages import Kernels, OptimizerSettings

Parameters = Sequence[tuple[str, Tensor]]

_DEPENDS_ON: dict[str, tuple[str, ...]] = {
    "apollo": ("rank", "scale", "seed", "moments"),
    "adamw": ("moments",),
    "adafactor": (),
    "adamw8bit": (),
}
"""Settings that the state of an optimizer depends on; the others may change from one run to the next."""


def make_optimizer(
    settings: OptimizerSettings,
    parameters: Parameters,
    round_to: Mapping[str, torch.dtype] | None = None,
    kernels: Kernels = "auto",
) -> NamedOptimizer:
    """The optimizer that `settings` name, for (name, parameter) pairs; `round_to`: see `NamedOptimizer`. `kernels`: for
    APOLLO; the others have no choice.

    Raises OptimizerError for settings that cannot work with these parameters, QuantizerMissing for adamw8bit without
    bitsandbytes.
    """
    makers: dict[str, Callable[..., NamedOptimizer]] = {
        "apollo": _apollo, "adamw": _adamw, "adafactor": _adafactor, "adamw8bit": _adamw8bit,
    }  # fmt: skip
    if settings.name not in makers:
        raise OptimizerError(
            f"there is no optimizer {settings.name!r}", f"set [trainer] optimizer to one of {', '.join(makers)}"
        )
    if settings.moments != "float32" and "moments" not in _DEPENDS_ON[settings.name]:
        raise OptimizerError(
            f"{settings.name} has no choice of moments, {settings.moments!r} is asked for",
            'set [trainer] moments = "float32"',
        )
    common: dict[str, Any] = {
        "weight_decay": settings.weight_decay, "seed": settings.seed, "rounding": settings.rounding,
        "round_to": round_to,
    }  # fmt: skip
    if settings.name == "apollo":
        common["kernels"] = kernels
    return makers[settings.name](settings, parameters, **common)


def misfit(saved: OptimizerSettings, here: OptimizerSettings) -> tuple[str, object, object] | None:
    """The first setting ([trainer] key, saved value, value here) that makes the saved state unusable here."""
    if saved.name != here.name:
        return "optimizer", saved.name, here.name
    for name in _DEPENDS_ON.get(here.name, ()):
        if getattr(saved, name) != getattr(here, name):
            return name, getattr(saved, name), getattr(here, name)
    if (saved.rounding == "master") != (here.rounding == "master"):  # a float32 copy of the weights is state
        return "rounding", saved.rounding, here.rounding
    return None


def _apollo(settings: OptimizerSettings, parameters: Parameters, **common: Any) -> Apollo:
    matrices = {name: parameter for name, parameter in parameters if parameter.dim() == 2}
    if matrices and all(summed_dim(parameter, settings.rank) is None for parameter in matrices.values()):
        widest = max(matrices, key=lambda name: min(matrices[name].shape))
        raise OptimizerError(
            f"rank = {settings.rank} is above the smaller side of every matrix (the widest: {widest} "
            f"{list(matrices[widest].shape)})",
            'lower [trainer] rank, or set optimizer = "adamw"',
        )
    return Apollo(
        parameters, rank=settings.rank, scale=settings.scale, betas=settings.betas, moments=settings.moments,
        gamma=settings.limiter or math.inf, limiter_rule=settings.limiter_rule, **common,
    )  # fmt: skip


def _adamw(settings: OptimizerSettings, parameters: Parameters, **common: Any) -> AdamW:
    return AdamW(parameters, betas=settings.betas, moments=settings.moments, **common)


def _adafactor(_settings: OptimizerSettings, parameters: Parameters, **common: Any) -> Adafactor:
    return Adafactor(parameters, **common)


def _adamw8bit(settings: OptimizerSettings, parameters: Parameters, **common: Any) -> AdamW8bit:
    return AdamW8bit(parameters, betas=settings.betas, **common)
