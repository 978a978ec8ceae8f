"""The Triton kernels on a GPU: their oracle is the eager path there, and the CPU's."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.determinism import deterministic  # noqa: F401
from torch import Tensor

from apollod.trainer.bind import live_fingerprint
from apollod.trainer.optim.apollo import Apollo

SHAPES = {
    "gate": (2816, 1024), "down": (1024, 2816), "square": (1024, 1024), "odd": (333, 257), "wide": (96, 4096),
    "norm": (1024,), "conv": (512, 1, 4), "narrow": (48, 1024),
}  # fmt: skip
Gradients = Callable[[str, int], Tensor]


def randn(shape: tuple[int, ...], seed: int, scale: float) -> Tensor:
    """The same values for every device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def dense(name: str, step: int) -> Tensor:
    return randn(SHAPES[name], step, 1e-3)


def few(name: str, step: int) -> Tensor:
    """At most one value in each row and column: its projection is exact in bf16, so all paths have the same R."""
    shape = SHAPES[name]
    if len(shape) != 2:
        return dense(name, step)
    out = torch.zeros(shape)
    rows = torch.randperm(shape[0], generator=torch.Generator().manual_seed(step))[: min(shape)]
    out[rows, torch.arange(min(shape))] = randn((min(shape),), step + 50, 1e-2)
    return out


def trained(
    device: str, kernels: Any, gradients: Gradients, dtype: torch.dtype = torch.bfloat16, steps: int = 3, **options: Any
) -> Apollo:
    named = [
        (name, torch.nn.Parameter(randn(shape, i, 0.05).to(device=device, dtype=dtype)))
        for i, (name, shape) in enumerate(SHAPES.items())
    ]
    optimizer = Apollo(named, **{"lr": 1e-3, "rank": 64} | options, kernels=kernels)
    for step in range(1, steps + 1):
        for name, parameter in named:
            parameter.grad = gradients(name, step).to(device=device, dtype=dtype)
        optimizer.step()
    return optimizer


def bits(optimizer: Apollo) -> dict[str, Tensor]:
    weights = {f"{unit.name}.weight": parameter.data for parameter, unit in optimizer._named.items()}
    return {name: tensor.detach().cpu() for name, tensor in (optimizer.state_tensors() | weights).items()}


OPTIONS: list[dict[str, Any]] = [
    {}, {"weight_decay": 0.1}, {"rounding": "nearest"}, {"rounding": "master"}, {"moments": "bfloat16"},
    {"scale": "tensor"},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("oracle", ["cuda", "cpu"])
def test_with_the_same_projection_every_bit_is_the_eager_one(oracle: str, options: dict[str, Any]) -> None:
    expected, found = bits(trained(oracle, "eager", few, **options)), bits(trained("cuda", "auto", few, **options))
    for name, tensor in expected.items():
        if name.endswith(".norm"):
            torch.testing.assert_close(found[name], tensor, rtol=1e-10, atol=0)
        else:
            assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_with_dense_gradients_the_state_is_close(dtype: torch.dtype, tolerance: float) -> None:
    expected, found = bits(trained("cuda", "eager", dense, dtype)), bits(trained("cuda", "triton", dense, dtype))
    for name, tensor in expected.items():
        if not name.endswith((".t", ".weight")):
            assert (found[name].double() - tensor.double()).abs().max() <= tolerance * tensor.double().abs().max(), name


def test_three_runs_give_the_same_bits() -> None:
    first, *others = [bits(trained("cuda", "triton", dense, steps=5)) for _ in range(3)]
    assert all(torch.equal(other[name], tensor) for other in others for name, tensor in first.items())


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_unusable_gradients_change_nothing_and_are_counted(value: float) -> None:
    def gradients(name: str, step: int) -> Tensor:
        gradient = dense(name, step)
        if step == 2 and name in ("gate", "conv"):
            gradient.fill_(value) if value == 0 else gradient.view(-1)[3:4].fill_(value)
        return gradient

    once, twice = trained("cuda", "triton", gradients, steps=1), trained("cuda", "triton", gradients, steps=2)
    assert twice.last_report is not None and twice.last_report.skipped == ["conv", "gate"]
    after = bits(twice)
    for name, tensor in bits(once).items():
        assert torch.equal(after[name], tensor) == name.startswith(("gate.", "conv.")) or name.endswith(".norm"), name


def test_a_step_in_the_backward_pass_never_waits_for_the_device() -> None:
    torch.manual_seed(0)
    model = (
        torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)).bfloat16().cuda()
    )
    optimizer = Apollo(model.named_parameters(), rank=64)
    optimizer.attach()
    batch = torch.randn(64, 512, device="cuda", dtype=torch.bfloat16)
    for step in range(1, 4):
        loss = model(batch).square().mean()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if step > 1 else "default")  # the first step compiles
        try:
            optimizer.begin(step, 1e-4)
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        report = optimizer.finish()
        assert report.updated == 4 and report.grad_norm > 0
        assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 1023, 1 << 20, (1 << 22) + 5])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32])
def test_the_fingerprint_is_the_cpu_one(size: int, dtype: torch.dtype) -> None:
    raw = torch.randint(
        0, 256, (size * dtype.itemsize,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size)
    )
    tensor = raw.view(dtype)
    assert live_fingerprint.tensor_fingerprint(tensor.cuda()) == live_fingerprint.tensor_fingerprint(tensor)
    if size > 2:
        assert live_fingerprint.tensor_fingerprint(tensor.cuda()[1:]) == live_fingerprint.tensor_fingerprint(tensor[1:])


def test_the_gradient_of_the_hidden_states_is_as_exact_as_torchs() -> None:
    """Shares of blocks of the vocabulary are added up before they are rounded."""
    from apollod.trainer.objectives.loss import BlockwiseLogProbabilities

    hidden, weight = (
        randn((40, 64), 1, 1.0).bfloat16().cuda().requires_grad_(),
        randn((5 * 4096, 64), 2, 0.3).bfloat16().cuda(),
    )
    chosen = torch.arange(0, 40 * 500, 500, device="cuda")

    def gradient(loss: Tensor, of: Tensor) -> Tensor:
        return torch.autograd.grad(loss, of)[0].double()

    wide = hidden.detach().double().requires_grad_()
    right = gradient(torch.nn.functional.cross_entropy(wide @ weight.double().t(), chosen), wide)
    torchs = gradient(torch.nn.functional.cross_entropy((hidden @ weight.t()).float(), chosen), hidden)
    ours = gradient(BlockwiseLogProbabilities.apply(hidden, weight, chosen, None).neg().mean(), hidden)
    assert (ours - right).norm() <= 1.05 * (torchs - right).norm()
