"""A small parameter's update in one compiled call: the bits of the same update in parts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from apollod.trainer.kernels import kernels_cpu
from apollod.trainer.optim import projector
from apollod.trainer.optim.open_step import ParameterStep
from apollod.trainer.optim.optimizers import make_optimizer
from apollod.wire.messages import OptimizerSettings

pytestmark = pytest.mark.skipif(not kernels_cpu.AVAILABLE, reason="numba is not installed")

SHAPES = {
    "row": (96, 64), "column": (64, 130), "square": (70, 70), "few rows": (50, 48), "below the rank": (4, 90),
    "three": (9, 1, 4),
    "vector": (257 * 2,), "two": (2,),
}  # fmt: skip
SETTINGS = [
    OptimizerSettings("apollo", rank=16, weight_decay=0.1),
    OptimizerSettings("apollo", rank=16, rounding="nearest"),
    OptimizerSettings("apollo", rank=1, scale="tensor"),
    OptimizerSettings("apollo", rank=16, limiter_rule="growth"),
    OptimizerSettings("adamw", weight_decay=0.1),
]


def gradient(shape: tuple[int, ...], step: int) -> Tensor:
    """Growing, so that the limiter acts; zero in one step, too large in another, nearly memorised in a third."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(step)) * 0.01 * step
    return (values * {3: 0.0, 5: 1e30, 6: 1e-7}.get(step, 1.0)).bfloat16()


def learned(
    settings: OptimizerSettings, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> tuple[dict[str, Tensor], list, int]:
    """Weights and state after some steps, the reports, and how many updates were made whole."""
    count, one_call = 0, ParameterStep.one_call

    def counted(step: ParameterStep, values: Tensor) -> object:
        nonlocal count
        found = one_call(step, values) if whole else None
        count += found is not None
        return found

    generator = torch.Generator().manual_seed(9)
    weights = {
        name: torch.nn.Parameter((torch.randn(shape, generator=generator) * 0.05).bfloat16())
        for name, shape in SHAPES.items()
    }
    optimizer = make_optimizer(settings, list(weights.items()))
    reports = []
    with monkeypatch.context() as patch:
        patch.setattr(ParameterStep, "one_call", counted)
        for step in range(1, 8):
            for parameter in weights.values():
                parameter.grad = gradient(tuple(parameter.shape), step)
            optimizer.begin(step, 1e-3)
            for parameter in weights.values():
                optimizer._update(parameter, parameter.grad)
            reports.append(optimizer.finish())
    return {**weights, **optimizer.state_tensors()}, reports, count


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.name}-{s.scale}-{s.rounding}-{s.limiter_rule}")
def test_the_bits_of_the_update_in_parts(settings: OptimizerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, reports, count = learned(settings, monkeypatch, True)
    parts, reports_of_parts, none = learned(settings, monkeypatch, False)
    assert (count, none) == (7 * len(SHAPES), 0)
    assert [
        name
        for name in parts
        if not torch.equal(whole[name].view(-1).view(torch.uint8), parts[name].view(-1).view(torch.uint8))
    ] == []
    assert reports == reports_of_parts
    assert [(r.updated, r.skipped_zero, r.skipped_nonfinite) for r in reports[1:5:2]] == [(8, 0, 0), (8, 0, 0)]
    assert (reports[2].skipped_zero, reports[4].skipped_nonfinite) == (8, 8)


@pytest.mark.parametrize(
    ("shape", "dtype", "options"),
    [
        ((8, 5), torch.bfloat16, {}),
        ((8, 6), torch.float32, {}),
        ((8, 6), torch.bfloat16, {"rounding": "master"}),
        ((8, 6), torch.bfloat16, {"moments": "bfloat16"}),
        ((1024, 6), torch.bfloat16, {}),
    ],
)
def test_what_does_not_fit_is_updated_in_parts(
    shape: tuple, dtype: torch.dtype, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd rows, other dtypes, master copies, other moments, more than a working block."""

    def refuse(*_args: object) -> None:
        raise AssertionError("updated whole")

    monkeypatch.setattr(projector, "BLOCK_ELEMENTS", 4096)
    monkeypatch.setattr(kernels_cpu, "apollo_step", refuse)
    monkeypatch.setattr(kernels_cpu, "adam_step", refuse)
    weight = torch.nn.Parameter(torch.ones(shape, dtype=dtype))
    optimizer = make_optimizer(OptimizerSettings("apollo", rank=4, **options), [("weight", weight)])
    weight.grad = torch.full_like(weight, 0.01)
    optimizer.step()
    assert optimizer.last_report is not None and optimizer.last_report.updated == 1
