"""Compares saved optimizer state with the present one and copies it in, only if everything matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from apollod.trainer.optim.optimizer_errors import StateRefused

STATE_VERSION = 1
"""Version of the meaning of state. Another one is refused, here and by checkpoints."""


def load_tensors(here: Mapping[str, Tensor], tensors: Mapping[str, Tensor], strict: bool) -> None:
    """Copy `tensors` into those of the same names `here` ("<parameter>.<field>"); nothing is ever cast.

    Raises StateRefused if a shape or dtype differs or, if `strict`, if a tensor is missing or unknown. Not strict:
    unknown tensors are ignored, and a parameter without any saved tensor keeps its state; the others need all of
    theirs.
    """
    saved_parameters = {name.rpartition(".")[0] for name in tensors}
    own = {name: t for name, t in here.items() if strict or name.rpartition(".")[0] in saved_parameters}
    shared = own.keys() & tensors.keys()
    for name in sorted(shared):
        saved, live = tensors[name], own[name]
        if saved.shape != live.shape:
            raise StateRefused(f"the shape of {name}", tuple(saved.shape), tuple(live.shape))
        if saved.dtype != live.dtype:
            raise StateRefused(f"the dtype of {name}", saved.dtype, live.dtype)
    if own.keys() - tensors.keys() or (strict and tensors.keys() - own.keys()):
        missing, unknown = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
        differ = f"({len(missing)} missing, {len(unknown)} unknown, such as {(missing or unknown)[0]})"
        raise StateRefused(f"the set of tensors {differ}", f"{len(tensors)} tensors", f"{len(own)} tensors")
    for name in shared:
        own[name].copy_(tensors[name])


def check_options(
    saved: Mapping[str, Any], optimizer: str, shaping: Sequence[str], groups: Sequence[Mapping[str, Any]]
) -> None:
    """Raise StateRefused unless state saved by `NamedOptimizer.state_dict` is of this optimizer, with groups of the
    same kind."""
    saved_groups = saved.get("param_groups", [])
    for what, here in (("optimizer", optimizer), ("version", STATE_VERSION)):
        if saved.get(what) != here:
            raise StateRefused(f"the {what}", saved.get(what), here)
    if len(saved_groups) != len(groups):
        raise StateRefused("the number of parameter groups", len(saved_groups), len(groups))
    for theirs, group in zip(saved_groups, groups, strict=True):
        for option in shaping:
            if theirs[option] != group[option]:
                raise StateRefused(f"the {option}", theirs[option], group[option])
        if (theirs["rounding"] == "master") != (group["rounding"] == "master"):
            raise StateRefused("the rounding", theirs["rounding"], group["rounding"])
