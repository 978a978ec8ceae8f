"""Compiled moments, coefficients, signs and float32 writes give the bits of their eager definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apollod.trainer.kernels import kernels_cpu
from apollod.trainer.optim import moments
from apollod.trainer.optim.adamw import adam_
from apollod.trainer.optim.apollo import Apollo, channel_rates_
from apollod.trainer.optim.moments import FALL, Norms, square_norm
from apollod.trainer.optim.open_step import ParameterStep
from apollod.trainer.optim.projector import signs
from apollod.trainer.optim.rounding import write_reference_, write_update_

KEY = 0xFEDCBA9876543210


def normal(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def eagerly(function, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_cpu, "AVAILABLE", False)
        return function(*arguments)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.view(torch.int32), right.view(torch.int32))


groups = st.fixed_dictionaries(
    {
        "betas": st.sampled_from(((0.9, 0.999), (0, 0.5))),
        "eps": st.sampled_from((1e-6, 1e-3)),
        "scale": st.sampled_from(("channel", "tensor")),
        "gamma": st.sampled_from((1.01, 2, math.inf)),
        "limiter_rule": st.sampled_from(("envelope", "growth")),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    channels=st.integers(1, 70),
    rank=st.integers(1, 70),
    summed=st.sampled_from((0, 1)),
    group=groups,
    seed=st.integers(0, 1000),
)
def test_compiled_coefficients_equal_the_eager_definition(channels, rank, summed, group, seed):
    """Over steps whose gradients grow, vanish and overflow, so that the limiter acts and steps are skipped."""
    shape = (channels, rank) if summed == 1 else (rank, channels)
    sides = [
        {"m": torch.zeros(shape), "v": torch.zeros(shape), "norm": torch.tensor(math.inf, dtype=torch.float64)}
        for _ in "ab"
    ]
    for step, scale in enumerate((1e-3, 1.0, 0.0, 1e-2, 1e19, 3.0)):
        low_rank = normal(*shape, seed=seed + step, scale=scale)
        squares = normal(channels, seed=seed).double().square() * scale**2
        held = [{key: tensor.clone() for key, tensor in state.items()} for state in sides]
        coef, norms = channel_rates_(low_rank.clone(), squares, -1e-3, summed, sides[0], group)
        expected, defined = eagerly(channel_rates_, low_rank.clone(), squares, -1e-3, summed, sides[1], group)
        assert (norms.zero, norms.nonfinite) == (defined.zero, defined.nonfinite) == (scale == 0, scale == 1e19)
        if norms.zero or norms.nonfinite:
            assert all(torch.equal(sides[i][key], held[i][key]) for i in (0, 1) for key in held[i])
            continue
        assert coef.shape == expected.shape == ((channels, 1) if summed == 1 else (1, channels))
        assert all(same_bits(sides[0][key], sides[1][key]) for key in "mv") and same_bits(coef, expected)
        assert norms == pytest.approx(defined, rel=1e-12)
        before, fall = float(held[0]["norm"]), FALL[group["limiter_rule"]]
        assert float(sides[0]["norm"]) == max(norms.update, 0.0 if math.isinf(before) else before * fall)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 300), group=groups, seed=st.integers(0, 1000))
def test_compiled_adam_equals_the_eager_definition(size, group, seed):
    sides = [{"m": torch.zeros(size, 1, 2), "v": torch.zeros(size, 1, 2)} for _ in "ab"]
    for step, scale in enumerate((1e-3, 1.0, 0.0, 1e-2)):
        gradient = normal(size, 1, 2, seed=seed + step, scale=scale)
        moments = (*group["betas"], group["eps"])
        update, expected = gradient.clone(), gradient.clone()
        square, defined = adam_(update, sides[0], moments), eagerly(adam_, expected, sides[1], moments)
        assert all(same_bits(sides[0][key], sides[1][key]) for key in "mv") and same_bits(update, expected)
        assert (
            square
            == pytest.approx(defined, rel=1e-12)
            == pytest.approx(float(update.double().square().sum()), rel=1e-5)
        )


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 300), dtype=st.sampled_from((torch.float32, torch.bfloat16)), seed=st.integers(0, 1000))
def test_square_norm_equals_the_eager_definition(size, dtype, seed):
    for scale in (1.0, 1e-12, 0.0, 1e18):
        gradient = normal(size, 1, seed=seed, scale=scale).to(dtype)
        expected = pytest.approx(float(gradient.double().square().sum()), rel=1e-5)
        assert square_norm(gradient) == expected and eagerly(square_norm, gradient) == expected
    for value in (math.nan, math.inf, -math.inf, 1e18):
        gradient.view(-1)[size // 2] = value
        norms = Norms(square_norm(gradient), 0.0)
        assert norms.nonfinite and Norms(eagerly(square_norm, gradient), 0.0).nonfinite and not norms.zero


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 70), rank=st.integers(1, 70), key=st.integers(0, 2**64 - 1))
def test_compiled_signs_equal_the_eager_definition(rows, rank, key):
    arguments = (key, rows, rank, torch.bfloat16)
    assert torch.equal(signs(*arguments), eagerly(signs, *arguments))


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 90),
    rounding=st.sampled_from(("stochastic", "nearest")),
    decay=st.sampled_from((1.0, 1 - 1e-4)),
    seed=st.integers(0, 1000),
)
def test_compiled_write_of_float32_weights_on_the_bf16_grid_equals_the_eager_definition(size, rounding, decay, seed):
    weight, update = normal(size, seed=seed).bfloat16().float(), normal(size, seed=seed + 1)
    expected = weight.clone()
    options = (decay, KEY + seed, rounding, torch.bfloat16)
    write_reference_(expected.unsqueeze(1), update.unsqueeze(1), torch.full((1, 1), 1e-2), *options)
    write_update_(weight, update, 1e-2, *options)
    assert same_bits(weight, expected) and torch.equal(weight, weight.bfloat16().float())


def test_bf16_second_moments_decay_though_no_step_is_half_an_ulp():
    """z-test of 1.0 after 200 steps at b2 = 0.999 (0.819). Rounded to the nearest it would be 1.0 for ever."""
    size, steps, beta2 = 1 << 14, 200, 0.999
    state = moments.new_moments([size], "bfloat16", torch.device("cpu"))
    state["v"].fill_(1.0)
    for step in range(steps):
        wide = moments.load_moments(state, None)
        adam_(torch.full((size,), 1e-9), wide, (0.9, beta2, 1e-6))
        moments.save_moments(state, wide, None, {"m": KEY + 2 * step, "v": KEY + 2 * step + 1})
    assert torch.tensor(1.0 * beta2).bfloat16() == 1.0  # what nearest would keep
    values = state["v"].double()
    standard_error = float(values.std()) / math.sqrt(size)
    assert abs(float(values.mean()) - beta2**steps) < 4 * standard_error < 2e-3


def test_the_rounding_of_bf16_moments_has_streams_of_its_own():
    """Of seed, name, step and moment; else one element would be rounded up in every step and its neighbour down."""
    halfway = torch.full((4096,), 1 + 2.0**-8)

    def kept(name="w", seed=0, number=1):
        state = moments.new_moments([4096], "bfloat16", torch.device("cpu"))
        weight = torch.zeros(4096)
        ParameterStep(name, {}, weight, weight.dtype, state, seed, number, 1).keep({"m": halfway, "v": halfway})
        return state["m"].float(), state["v"].float()

    first, again = kept(), kept()
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    others = [*kept(name="x"), *kept(seed=1), *kept(number=2), first[1]]
    for other in others:
        assert set(other.tolist()) == {1.0, 1 + 2.0**-7}
        assert 0.4 < float((other == first[0]).float().mean()) < 0.6  # as often equal as independent halves are


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_moments_are_stored_in_parts_as_in_one(kind):
    """The noise of an element depends on its index in the parameter, also where a part begins at an odd one."""
    values = {name: normal(301, seed=seed, scale=1e-3) for seed, name in enumerate("mv")}
    keys, results = {"m": KEY, "v": KEY + 1}, []
    for parts in ([None], [slice(0, 100), slice(100, 301)], [slice(0, 7), slice(7, 300), slice(300, 301)]):
        state = moments.new_moments([7, 43], kind, torch.device("cpu"))
        for part in parts:
            wide = moments.load_moments(state, part)
            for name in "mv":
                wide[name].view(-1).copy_(values[name] if part is None else values[name][part])
            moments.save_moments(state, wide, part, keys)
        results.append(state)
    for name in "mv":
        assert all(torch.equal(results[0][name], other[name]) for other in results[1:])
        assert float((results[0][name].float().view(-1) - values[name]).abs().max()) <= (
            0 if kind == "float32" else 2**-7 * 4e-3
        )
    assert kind == "float32" or not torch.equal(results[0]["m"], values["m"].view(7, 43).bfloat16())


@pytest.mark.parametrize("shape", [(5,), (12, 8)])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_leaves_gradients_as_they_are(shape, compiled, monkeypatch):
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", compiled)
    p = torch.nn.Parameter(torch.zeros(shape))
    p.grad = normal(*shape, seed=1)
    Apollo([("w", p)], rank=4).step()
    assert torch.equal(p.grad, normal(*shape, seed=1)) and p.detach().any()
