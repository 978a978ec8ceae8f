"""Stochastic rounding is unbiased, picks one of two neighbours, and depends on nothing but key and element."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from apollod.trainer.kernels import kernels_cpu
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.projector import random_words
from apollod.trainer.optim.rounding import noise, stochastic_round, write_reference_, write_update_

KEY = 0x0123456789ABCDEF


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


@given(bits=npst.arrays(np.uint32, 40, elements=st.integers(0, 2**32 - 1)), key=st.integers(0, 2**64 - 1))
def test_only_ever_one_of_the_two_neighbours(bits, key):
    values = torch.from_numpy(bits.view(np.float32).copy())
    rounded = stochastic_round(values, key)
    grid = rounded.numpy().view(np.uint32)
    below = bits & np.uint32(0xFFFF0000)
    for value, low, got, number in zip(bits.tolist(), below.tolist(), grid.tolist(), values.tolist(), strict=True):
        if math.isnan(number):
            continue
        allowed = {low} if value == low else {low, low + 0x10000}
        assert got in allowed
    assert torch.equal(rounded.isnan(), values.isnan())


@pytest.mark.parametrize("rounding", ["stochastic", "nearest"])
@pytest.mark.parametrize("compiled", [True, False])
def test_nan_and_infinity_stay_what_they_are(rounding, compiled, monkeypatch):
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", compiled)
    # The last is the NaN whose carry would make -0.0 and the one whose payload lies in the dropped bits.
    bad = torch.tensor([math.inf, -math.inf, math.nan, -math.nan, 0, 0]).repeat(64)
    weight, update = torch.zeros(384, dtype=torch.bfloat16), bad.clone()
    update.view(torch.int32)[4::6] = 0x7FFFFFFF
    update.view(torch.int32)[5::6] = 0x7F800001
    write_update_(weight, update, torch.ones(()), 1.0, KEY, rounding, torch.bfloat16)
    assert torch.equal(weight.isnan(), update.isnan())
    assert torch.equal(weight[0::6], bad[0::6].bfloat16()) and torch.equal(weight[1::6], bad[1::6].bfloat16())


@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.5, 0.93])
@pytest.mark.parametrize("compiled", [True, False])
def test_unbiased(fraction, compiled, monkeypatch):
    """z-test of the mean over many elements and keys, for updates of a fraction of an ulp."""
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", compiled)
    start, ulp, n, keys = 1.0, 2.0**-7, 1 << 14, 24
    update = torch.full((n,), fraction * ulp)
    moved = 0.0
    for key in range(keys):
        weight = torch.full((n,), start, dtype=torch.bfloat16)
        write_update_(
            weight, update, torch.ones(()), 1.0, key * 0x9E3779B97F4A7C15 % 2**64, "stochastic", torch.bfloat16
        )
        moved += float((weight.double() - start).sum())
    p = round(fraction * 65536) / 65536
    z = (moved / ulp - n * keys * p) / math.sqrt(n * keys * p * (1 - p))
    assert abs(z) < 4


def test_noise_is_uniform_and_neighbours_are_independent():
    values = noise(KEY, 0, 1 << 18).double() / 65536
    n = values.numel()
    assert abs(values.mean() - 0.5) < 5 / math.sqrt(12 * n)
    centred = values - 0.5
    for lag in (1, 2, 64, 1024):  # lag 1 pairs the two halves of one hash
        assert abs((centred[:-lag] * centred[lag:]).mean()) * 12 < 5 / math.sqrt(n)
    other = noise(KEY + (1 << 32), 0, n).double() / 65536 - 0.5
    assert abs((centred * other).mean()) * 12 < 5 / math.sqrt(n)


@given(first=st.integers(0, 100), count=st.integers(0, 20))
def test_noise_of_an_element_does_not_depend_on_where_a_block_begins(first, count):
    words = random_words(KEY, 0, 64).numpy().view(np.uint32)
    assert torch.equal(noise(KEY, first, count), noise(KEY, 0, 120)[first : first + count])
    element = noise(KEY, 0, 120).tolist()
    assert element[:4] == [words[0] & 0xFFFF, words[0] >> 16, words[1] & 0xFFFF, words[1] >> 16]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 90),
    channels=st.sampled_from(("rows", "columns", "elements")),
    rounding=st.sampled_from(("stochastic", "nearest")),
    decay=st.sampled_from((1.0, 1 - 1e-4)),
    offset=st.sampled_from((0, 1, 2)),
    seed=st.integers(0, 1000),
)
def test_compiled_write_equals_the_eager_definition(rows, columns, channels, rounding, decay, offset, seed):
    """Bit for bit, also for odd widths and slices that no 32-bit word begins at."""
    storage = normal(rows * columns + offset, seed=seed, scale=0.05).bfloat16()
    weight = storage[offset:].view(rows, columns)
    update = normal(rows, columns, seed=seed + 1)
    coef = {"rows": normal(rows, 1, seed=2), "columns": normal(1, columns, seed=2), "elements": torch.tensor(0.7)}[
        channels
    ] * 1e-3
    if channels != "elements":
        update = update.bfloat16()
    expected = weight.clone()
    write_reference_(
        expected, update, coef.view(1, 1) if coef.dim() == 0 else coef, decay, KEY + seed, rounding, torch.bfloat16
    )
    write_update_(weight, update, coef, decay, KEY + seed, rounding, torch.bfloat16)
    assert torch.equal(weight.view(torch.int16), expected.view(torch.int16))


@pytest.mark.parametrize("channels", ["rows", "columns", "elements"])
def test_products_are_rounded_before_the_sum(channels):
    """A fused multiply-add keeps the low bits of a product. The products cancel here, so that nothing else is left."""
    decay, size = np.float32(0.7), (32, 128)
    weight, scale = normal(*size, seed=3).bfloat16(), {"rows": (32, 1), "columns": (1, 128), "elements": ()}[channels]
    update = weight.clone() if channels != "elements" else weight.float()
    coef = torch.full(scale, -0.7000001)
    expected = (
        weight.float().numpy() * decay + update.float().numpy() * coef.numpy()
    )  # numpy rounds after each operation
    fused = (weight.double().numpy() * float(decay) + update.double().numpy() * coef.double().numpy()).astype(
        np.float32
    )
    assert (expected != fused).mean() > 0.5
    write_update_(weight, update, coef, float(decay), KEY, "stochastic", torch.bfloat16)
    assert torch.equal(weight.float(), stochastic_round(torch.from_numpy(expected), KEY))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("held", [torch.bfloat16, torch.float32])
def test_a_write_in_parts_is_the_write_in_one(held, compiled, monkeypatch):
    """Of elements, wherever a part begins: the compiled kernel takes even beginnings, the definition all."""
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", compiled)
    start, update = normal(400, seed=1, scale=0.05).bfloat16(), normal(400, seed=2)
    results = []
    for cuts in ([0, 400], [0, 64, 400], [0, 1, 77, 300, 400]):
        weight = start.to(held, copy=True)
        for first, last in itertools.pairwise(cuts):
            part = slice(first, last)
            write_update_(weight[part], update[part], 1e-3, 1.0, KEY, "stochastic", torch.bfloat16, first)
        results.append(weight)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    assert not torch.equal(results[0], (start.float() + 1e-3 * update).bfloat16().to(held))


def test_nearest_is_round_to_nearest_even():
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20])
    weight = torch.zeros(4, dtype=torch.bfloat16)
    write_update_(weight, ties, torch.ones(()), 1.0, KEY, "nearest", torch.bfloat16)
    assert weight.tolist() == [1.0, 1 + 2**-6, -1.0, 1 + 2**-7]


def test_float32_weights_are_not_rounded_unless_asked():
    update = normal(50, seed=5)
    plain, cast = torch.zeros(50), torch.zeros(50)
    write_update_(plain, update, torch.tensor(1.0), 1.0, KEY, "stochastic", torch.float32)
    write_update_(cast, update, torch.tensor(1.0), 1.0, KEY, "stochastic", torch.bfloat16)
    assert torch.equal(plain, update)
    assert torch.equal(cast, stochastic_round(update, KEY)) and torch.equal(cast, cast.bfloat16().float())


def test_cast_parameter_stays_on_the_bf16_grid():
    p = torch.nn.Parameter(torch.linspace(-2, 2, 33).bfloat16().float())
    optimizer = Apollo([("A_log", p)], lr=1e-4, round_to={"A_log": torch.bfloat16})
    start = p.detach().clone()
    for step in range(50):
        p.grad = torch.full((33,), 1.0)
        optimizer.step()
        assert torch.equal(p, p.bfloat16().float()), step
    assert p.dtype == torch.float32
    assert float((p.detach() - start).mean()) == pytest.approx(-50e-4, rel=0.2)  # far below half an ulp a step


def test_seed_step_and_name_each_change_the_bits():
    def weights(name="w", seed=0, step=1):
        p = torch.nn.Parameter(torch.full((4096,), 0.5, dtype=torch.bfloat16))  # a vector: only the rounding is random
        p.grad = torch.ones_like(p)
        optimizer = Apollo([(name, p)], lr=1e-3, seed=seed)
        optimizer.set_step(step)
        optimizer.step()
        return p.detach()

    assert torch.equal(weights(), weights())
    for other in ({"name": "x"}, {"seed": 1}, {"step": 2}):
        assert not torch.equal(weights(), weights(**other)), other


def test_kernels_work_where_no_cache_directory_is_writable(monkeypatch):
    import numba

    real = numba.njit

    def no_locator(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", no_locator)
    assert kernels_cpu._jit(lambda x: x + 1)(1) == 2


def test_import_does_not_load_numba():
    code = "import sys, apollod.trainer.optim.apollo; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
