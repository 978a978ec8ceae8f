"""The Triton kernels against the eager path, in Triton's interpreter: run by test_kernels_cuda.py in a process of its
own, since the interpreter has to be chosen (TRITON_INTERPRET=1) before Triton is imported.

The interpreter takes milliseconds for each operation of each program, so shapes are the smallest that give every
kernel a second program, a second pass of each loop and a last block that is not full."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from support.effort import LONG, cases
from support.fingerprints import check_one_number_is_read
from torch import Tensor

from apollod.trainer.kernels import fingerprint_triton, kernels_cuda
from apollod.trainer.optim import apollo_triton
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.open_step import OptimizerError
from apollod.trainer.optim.projector import project, random_words, signs, square_norms, stream_key
from apollod.trainer.optim.rounding import noise, stochastic_round, write_update_

KEYS = [stream_key("rounding", 0, "w", 1), 0xFFFFFFFF_80000000, 0x00000010_FFFFFFFF]
SHAPES = {"row": (72, 66), "column": (32, 70), "odd": (40, 33), "norm": (7,), "conv": (20, 1, 4), "narrow": (16, 90)}
"""With rank 32: two blocks of channels by row and by column, two of the inner side, a smaller side of just the rank,
columns that do not pair; Adam's in one and in two tiles."""
RANK = 32

_hash, _noise, _round, _basis = kernels_cuda._hash, kernels_cuda._noise, kernels_cuda._round, kernels_cuda._basis


@triton.jit
def words_kernel(out, first, low, high, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE) + first
    tl.store(out + tl.arange(0, SIZE), _hash(index.to(tl.uint32), low, high).to(tl.int32, bitcast=True))
    tl.store(out + SIZE + tl.arange(0, SIZE), _noise(index.to(tl.int64), low, high).to(tl.int32, bitcast=True))


@triton.jit
def basis_kernel(out, low, high, K: tl.constexpr, RANK: tl.constexpr, RANK_BLOCK: tl.constexpr):
    k = tl.arange(0, K)
    tl.store(
        out + k[:, None] * RANK_BLOCK + tl.arange(0, RANK_BLOCK)[None, :],
        _basis(k, low, high, RANK, RANK_BLOCK, tl.float32),
    )


@triton.jit
def round_kernel(values, out, low, high, SIZE: tl.constexpr, ROUND: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out + at, _round(tl.load(values + at), _noise(at.to(tl.int64), low, high), ROUND))


def halves(key: int) -> tuple[int, int]:
    return apollo_triton._signed(key & 0xFFFFFFFF), apollo_triton._signed(key >> 32)


def randn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


# --- random numbers and rounding, bit for bit -----------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("first", [0, 1, 2**31 - 300])
def test_random_words_and_noise_are_the_eager_ones(key: int, first: int) -> None:
    out = torch.empty(2, 256, dtype=torch.int32)
    words_kernel[(1,)](out, first, *halves(key), SIZE=256)
    assert torch.equal(out[0], random_words(key, first, 256))
    assert torch.equal(out[1], noise(key, first, 256))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("rank", [1, 5, 32, 64, 128])
def test_the_projection_is_the_eager_one(key: int, rank: int) -> None:
    block = max(16, triton.next_power_of_2(rank))
    out = torch.empty(64, block)
    basis_kernel[(1,)](out, *halves(key), K=64, RANK=rank, RANK_BLOCK=block)
    assert torch.equal(out[:, :rank], signs(key, 64, rank, torch.float32))
    assert not out[:, rank:].any()


def special_values() -> Tensor:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1024, dtype=np.uint32)
    bits[:8] = [0x7F800000, 0xFF800000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F7FFFFF, 0x00000001, 0x80000000]
    return torch.from_numpy(bits.view(np.float32))


@pytest.mark.parametrize("key", KEYS)
def test_rounding_is_the_eager_one_for_any_bits(key: int) -> None:
    values, out = special_values(), torch.empty(1024)
    nan = values.isnan()
    for rounding, expected in (
        (kernels_cuda.STOCHASTIC, stochastic_round(values, key)), (kernels_cuda.NEAREST, values.bfloat16().float()),
    ):  # fmt: skip
        round_kernel[(1,)](values, out, *halves(key), SIZE=1024, ROUND=rounding)
        assert out[nan].isnan().all() and nan.sum() > 3
        assert torch.equal(out[~nan].view(torch.int32), expected[~nan].view(torch.int32))


# --- the kernels of a matrix ----------------------------------------------------------------------------------------


PRODUCTS = cases(
    [((96, 80), 64, 256), ((80, 130), 5, 256), ((130, 140), 64, 64), ((140, 130), 16, 64)],
    [((560, 600), 64, 256), ((600, 560), 16, 256)],
)


@pytest.mark.parametrize(("shape", "rank", "split"), PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_projection_and_channel_norms(
    shape: tuple[int, int], rank: int, split: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the eager product in float32; 130 by 64 and 560 by 256 elements are three splits."""
    monkeypatch.setattr(apollo_triton, "SPLIT_MIN", split)
    seen: dict[str, Tensor] = {}
    real = kernels_cuda.moments

    class Spy:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def run(low_rank: Tensor, squares: Tensor, totals: Tensor, *args: Any, **options: Any) -> None:
                seen.update(low_rank=low_rank, squares=squares, totals=totals)
                real[grid](low_rank, squares, totals, *args, **options)

            return run

    monkeypatch.setattr(kernels_cuda, "moments", Spy())
    gradient = randn(*shape, scale=1e-3).to(dtype)
    weight = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
    weight.grad = gradient
    optimizer = Apollo([("w", weight)], rank=rank, seed=7, betas=(0.75, 0.999), kernels="triton")
    optimizer.step()
    summed = 1 if shape[0] >= shape[1] else 0
    expected = project(gradient.float(), stream_key("projection", 7, "w", 0), rank)
    found = seen["low_rank"].sum(0) * rank**-0.5
    assert seen["low_rank"].shape[0] == (3 if min(shape) > 2 * split else 1)
    torch.testing.assert_close(found if summed == 1 else found.t(), expected, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(
        optimizer.state_tensors()["w.m"], expected / 4, rtol=1e-5, atol=1e-8
    )  # all splits added up
    squares = square_norms(gradient, summed)
    torch.testing.assert_close(seen["squares"].view(-1, squares.numel()).sum(0), squares, rtol=1e-6, atol=0)
    torch.testing.assert_close(seen["totals"].sum(), squares.sum(), rtol=1e-6, atol=0)


WRITES = [
    (pair, *rest)
    for pair in product(((70, 66), (30, 601)), (True, False))
    for rest in product(("stochastic", "nearest"), (torch.bfloat16, torch.float32))
]
HALF = [write for n, write in enumerate(WRITES) if n.bit_count() % 2 == 0]
"""any three of the four are met in each combination"""


@pytest.mark.parametrize(
    ("where", "rounding", "weight_dtype"), cases(HALF, [write for write in WRITES if write not in HALF])
)
def test_the_write_is_the_eager_one(
    where: tuple[tuple[int, int], bool], rounding: str, weight_dtype: torch.dtype
) -> None:
    """Bit for bit; 601 is odd, so elements are not written in pairs."""
    shape, by_row = where
    weight, gradient = (randn(*shape, seed=i, scale=0.05).bfloat16() for i in (1, 2))
    weight = weight.to(weight_dtype)
    scales = randn(shape[0] if by_row else shape[1], seed=3).double().abs()
    group = {
        "betas": (0.9, 0.999), "lr": 1e-2, "weight_decay": 0.1, "eps": 1e-6, "gamma": 1.01, "limiter_rule": "envelope",
        "rounding": rounding,
    }  # fmt: skip
    scalars = torch.tensor(apollo_triton._scalars(group), dtype=torch.float64)
    result = torch.zeros(apollo_triton.RESULT, dtype=torch.float64)
    result[0], result[2], result[3] = 1.0, math.inf, 0.37
    state = {"norm": torch.full((), math.inf, dtype=torch.float64), "t": torch.zeros((), dtype=torch.int64)}
    update = apollo_triton.Update("w", weight.clone(), gradient, state, group, torch.bfloat16, 5, 9, 1 if by_row else 0)
    partials = torch.tensor([0.25, 2.0, 0.0, 0.0], dtype=torch.float64)
    apollo_triton._write(update, scales, partials, 2, scalars, result, by_row, False)

    expected = weight.clone()
    coef = (scales * (-1e-2 * 0.37)).float().unsqueeze(1 if by_row else 0)
    write_update_(expected, gradient, coef, 1 - 1e-2 * 0.1, stream_key("rounding", 5, "w", 9), rounding, torch.bfloat16)
    assert torch.equal(update.weight, expected) and not torch.equal(expected, weight)
    assert float(state["norm"]) == 1.5 and int(state["t"]) == 1 and float(result[1]) == 1.5 * 0.37


# --- the optimizer --------------------------------------------------------------------------------------------------


def parameters(dtype: torch.dtype) -> list[tuple[str, torch.nn.Parameter]]:
    return [
        (name, torch.nn.Parameter(randn(*shape, seed=i, scale=0.05).to(dtype)))
        for i, (name, shape) in enumerate(SHAPES.items())
    ]


def both(dtype: torch.dtype, steps: int, gradients: Any, **options: Any) -> tuple[Apollo, Apollo]:
    """The eager optimizer and the kernels' after the same steps."""
    made = []
    for kernels in ("eager", "triton"):
        named = parameters(dtype)
        optimizer = Apollo(named, **{"lr": 1e-3, "rank": RANK} | options, kernels=kernels)
        for step in range(1, steps + 1):
            for name, parameter in named:
                parameter.grad = gradients(name, step).to(dtype)
            optimizer.step()
        made.append(optimizer)
    return made[0], made[1]


def few(name: str, step: int) -> Tensor:
    """At most one value in each row and column: its projection is exact in bf16, so both paths have the same R."""
    shape = SHAPES[name]
    if len(shape) != 2:
        return randn(*shape, seed=step, scale=1e-3)
    out = torch.zeros(shape)
    rows = torch.randperm(shape[0], generator=torch.Generator().manual_seed(step))[: min(shape)]
    out[rows, torch.arange(min(shape))[: len(rows)]] = randn(len(rows), seed=step + 50, scale=1e-2)
    return out


OPTIONS: list[dict[str, Any]] = cases(
    [
        {}, {"rounding": "nearest", "weight_decay": 0.1, "moments": "bfloat16", "rank": 5, "gap": 2, "gamma": math.inf},
        {"rounding": "master", "betas": (0.0, 0.5), "scale": "tensor", "rank": 1, "limiter_rule": "growth"},
    ],
    [
        {"rounding": "nearest", "weight_decay": 0.1, "rank": 16}, {"rounding": "master", "betas": (0.0, 0.5)},
        {"moments": "bfloat16", "rank": 5, "gap": 2}, {"scale": "tensor", "rank": 1}, {"gamma": math.inf},
        {"limiter_rule": "growth"}, {"weight_decay": 0.1, "rank": 16}, {"rounding": "nearest"}, {"rounding": "master"},
        {"moments": "bfloat16"}, {"rank": 5}, {"betas": (0.0, 0.5)}, {"gap": 2},
    ],
)  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_with_the_same_projection_every_bit_is_the_eager_one(options: dict[str, Any]) -> None:
    eager, kernels = both(torch.bfloat16, 3 if LONG else 2, few, **options)
    for (name, expected), found in zip(eager.state_tensors().items(), kernels.state_tensors().values(), strict=True):
        if name.endswith(".norm"):
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
        else:
            assert torch.equal(found, expected), name
    for expected, found in zip(eager._named, kernels._named, strict=True):
        assert torch.equal(found, expected)
    assert kernels.last_report is not None and eager.last_report is not None
    assert math.isclose(kernels.last_report.update_norm, eager.last_report.update_norm, rel_tol=1e-7)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    cases(
        [(torch.float32, "channel")],
        [(torch.bfloat16, "tensor"), (torch.float32, "tensor"), (torch.bfloat16, "channel")],
    ),
)
def test_with_dense_gradients_the_state_is_close(dtype: torch.dtype, scale: str) -> None:
    """float32: 1e-6 of the largest moment. bf16: the eager path rounds its projection to bf16, 2^-9, squared in v."""
    eager, kernels = both(dtype, 2, lambda name, step: randn(*SHAPES[name], seed=step, scale=1e-3), scale=scale)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    for (name, expected), found in zip(eager.state_tensors().items(), kernels.state_tensors().values(), strict=True):
        difference = (found.double() - expected.double()).abs().max()
        assert difference <= tolerance * expected.double().abs().max(), name
    for name in ("conv", "norm"):  # Adam's have no projection
        assert torch.equal(kernels.state_tensors()[f"{name}.m"], eager.state_tensors()[f"{name}.m"])
    assert kernels.last_report is not None and eager.last_report is not None
    assert math.isclose(kernels.last_report.grad_norm, eager.last_report.grad_norm, rel_tol=1e-6)


UNUSABLE = [
    {"row": 0.0, "column": math.nan, "conv": math.inf, "narrow": 1e-14, "norm": 1e18},
    {"row": math.inf, "column": 1e-14, "odd": 1e18, "conv": 0.0, "narrow": math.nan},
]
"""Every kind of value, in a matrix and in a parameter of Adam's; the others are usable."""


@pytest.mark.parametrize("unusable", UNUSABLE, ids=["0", "1"])
def test_unusable_gradients_change_nothing_and_are_counted(unusable: dict[str, float]) -> None:
    def gradients(name: str, step: int) -> Tensor:
        gradient = randn(*SHAPES[name], seed=step, scale=1e-3)
        if step == 2 and name in unusable:
            value = unusable[name]
            gradient.fill_(value) if abs(value) < 1 else gradient.view(-1)[3:4].fill_(value)
        return gradient

    eager, kernels = both(torch.float32, 2, gradients)
    assert kernels.last_report is not None and eager.last_report is not None
    assert kernels.last_report.skipped == sorted(unusable) == eager.last_report.skipped
    assert kernels.last_report.skipped_zero == 2 == eager.last_report.skipped_zero
    assert kernels.last_report.updated == len(SHAPES) - len(unusable)
    _, once = both(torch.float32, 1, gradients)
    for name in unusable:
        for field in ("m", "v", "t"):
            assert torch.equal(kernels.state_tensors()[f"{name}.{field}"], once.state_tensors()[f"{name}.{field}"])
    for (name, _), after, earlier in zip(SHAPES.items(), kernels._named, once._named, strict=True):
        assert torch.equal(after, earlier) == (name in unusable), name


def test_a_second_gradient_in_a_step_is_refused() -> None:
    weight = torch.nn.Parameter(torch.zeros(64, 64))
    optimizer = Apollo([("w", weight)], kernels="triton")
    optimizer.begin(1)
    optimizer._update(weight, torch.ones(64, 64))
    with pytest.raises(OptimizerError, match="second gradient"):
        optimizer._update(weight, torch.ones(64, 64))
    with pytest.raises(OptimizerError, match="sparse"):
        optimizer.begin(1)
        optimizer._update(weight, torch.ones(64, 64).to_sparse())


MASTER, NARROW = {"rounding": "master", "weight_decay": 0.1}, {"moments": "bfloat16", "scale": "tensor"}


@pytest.mark.parametrize(
    ("steps", "options"), cases([(0, MASTER), (1, NARROW)], [(0, {}), (0, NARROW), (1, {}), (1, MASTER)]), ids=str
)
def test_warming_up_launches_every_kernel_and_changes_no_bit(
    steps: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, optimizer = both(torch.bfloat16, steps, few, **options)
    weights = {unit.name: parameter for parameter, unit in optimizer._named.items()}
    before = {name: tensor.detach().clone() for name, tensor in (weights | optimizer.state_tensors()).items()}
    launched: list[str] = []
    for queue in ("_apollo", "_adam"):
        real = getattr(apollo_triton, queue)
        monkeypatch.setattr(
            apollo_triton, queue, lambda update, *rest, real=real: (launched.append(update.name), real(update, *rest))
        )
    optimizer.warm_up()
    assert sorted(launched) == sorted(SHAPES)
    for name, tensor in (weights | optimizer.state_tensors()).items():
        assert torch.equal(tensor, before[name]), name
    assert optimizer.last_report is None or optimizer.last_report.updated == len(SHAPES)


def test_the_fingerprint_of_all_tensors_is_one_launch_and_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tensors in the form of the checkpoint, and of those that have to be brought into it first."""
    monkeypatch.setattr(fingerprint_triton, "SEGMENT_WORDS", 2048)
    check_one_number_is_read("cpu", triton=True)
