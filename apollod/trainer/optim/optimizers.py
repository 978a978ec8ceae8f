"""The table of optimizers that a configuration can name: one file each, all behind `NamedOptimizer`.

A new optimizer is one file with its formulas and paper, one line in this table, its name in core/settings.py, one line
for the bytes of its state in model/memory_table.py, and a case in tests/unit/trainer/test_optimizers.py.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from apollod.core.settings import Kernels, OptimizerSettings
from apollod.trainer.optim.adafactor import Adafactor
from apollod.trainer.optim.adamw import AdamW, AdamW8bit
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.open_step import OptimizerError

OPTIMIZERS: dict[str, type[NamedOptimizer]] = {one.NAME: one for one in (Apollo, AdamW, Adafactor, AdamW8bit)}


def make_optimizer(
    settings: OptimizerSettings,
    parameters: Sequence[tuple[str, Tensor]],
    round_to: Mapping[str, torch.dtype] | None = None,
    kernels: Kernels = "auto",
) -> NamedOptimizer:
    """The optimizer that `settings` name, for (name, parameter) pairs; `round_to`: see `NamedOptimizer`. `kernels`: for
    APOLLO; the others have no choice.

    Raises OptimizerError for settings that cannot work with these parameters, QuantizerMissing for adamw8bit without
    bitsandbytes.
    """
    if settings.name not in OPTIMIZERS:
        raise OptimizerError(
            f"there is no optimizer {settings.name!r}", f"set [trainer] optimizer to one of {', '.join(OPTIMIZERS)}"
        )
    kind = OPTIMIZERS[settings.name]
    if settings.moments != "float32" and "moments" not in kind.DEPENDS_ON:
        raise OptimizerError(
            f"{settings.name} has no choice of moments, {settings.moments!r} is asked for",
            'set [trainer] moments = "float32"',
        )
    own = {"kernels": kernels} if kind.KERNELS else {}
    return kind.from_settings(
        settings, parameters, weight_decay=settings.weight_decay, seed=settings.seed, rounding=settings.rounding,
        round_to=round_to, **own,
    )  # fmt: skip


def misfit(saved: OptimizerSettings, here: OptimizerSettings) -> tuple[str, object, object] | None:
    """The first setting ([trainer] key, saved value, value here) that makes the saved state unusable here."""
    if saved.name != here.name:
        return "optimizer", saved.name, here.name
    for name in OPTIMIZERS[here.name].DEPENDS_ON:
        if getattr(saved, name) != getattr(here, name):
            return name, getattr(saved, name), getattr(here, name)
    if (saved.rounding == "master") != (here.rounding == "master"):  # a float32 copy of the weights is state
        return "rounding", saved.rounding, here.rounding
    return None
