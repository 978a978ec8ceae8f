"""The optimizer as mathematics: a float64 oracle, convergence, coherence, and bitwise repeatability."""

from __future__ import annotations

import gc
import math
import warnings
import weakref
from functools import partial

import pytest
import torch
from support.apollo_oracle import Oracle
from support.gradients import SHAPES, give_gradients, model, same_bits

from apollod.trainer.kernels import kernels_cpu
from apollod.trainer.optim import projector, rounding
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.named_optimizer import StateRefused
from apollod.trainer.optim.open_step import OptimizerError
from apollod.trainer.optim.rounding import write_reference_


def run(optimizer: Apollo, parameters: dict[str, torch.nn.Parameter], steps: range) -> None:
    for step in steps:
        give_gradients(parameters, step)
        optimizer.set_step(step)
        optimizer.step()


@pytest.mark.parametrize(
    ("rank", "scale"), [(8, "channel"), (8, "tensor"), (1, "tensor"), (1, "channel"), (24, "channel")]
)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("limiter_rule", ["growth", "envelope"])
def test_equals_the_formulas(rank, scale, weight_decay, limiter_rule):
    """Rank 1 with one scale a tensor is APOLLO-Mini; at rank 24 more parameters take Adam."""
    parameters = model(torch.float32)
    options = {"lr": 1e-2, "rank": rank, "scale": scale, "weight_decay": weight_decay, "gap": 4, "gamma": 1.01}
    options["limiter_rule"] = limiter_rule
    oracles = {name: Oracle(name, p.detach(), **options) for name, p in parameters.items()}
    optimizer = Apollo(parameters.items(), seed=7, **options)
    for step in range(1, 11):
        # The jump makes the limiter act, the small one makes the rules differ.
        give_gradients(parameters, step, scale=1e-3 if step < 6 or step == 9 else 1e-2)
        for name, p in parameters.items():
            oracles[name].step(step, p.grad)
        optimizer.step()
        report = optimizer.last_report
        assert report.updated == len(SHAPES) and report.skipped == []
        assert report.update_norm == pytest.approx(math.sqrt(sum(o.update_square for o in oracles.values())), rel=1e-5)
        assert report.grad_norm == pytest.approx(math.sqrt(sum(o.grad_square for o in oracles.values())), rel=1e-6)
    assert oracles["up.weight"].limited and oracles["down.weight"].limited
    start = model(torch.float32)
    for name, p in parameters.items():
        origin = start[name].detach().double()
        moved, expected = p.detach().double() - origin, oracles[name].w - origin
        assert float((moved - expected).norm() / expected.norm()) < 1e-5, name


def test_bf16_weights_follow_the_formulas_within_their_rounding():
    parameters = model()
    options = {"lr": 1e-2, "rank": 8, "scale": "channel", "weight_decay": 0.0, "gap": 200, "gamma": 1.01}
    options["limiter_rule"] = "envelope"
    oracles = {name: Oracle(name, p.detach(), **options) for name, p in parameters.items()}
    optimizer = Apollo(parameters.items(), seed=7, **options)
    for step in range(1, 6):
        give_gradients(parameters, step)
        for name, p in parameters.items():
            oracles[name].step(step, p.grad)
        optimizer.step()
    for name, p in parameters.items():
        error = (p.detach().double() - oracles[name].w).abs() / (oracles[name].w.abs() + 0.02)
        assert float(error.max()) < 5 * 2**-7, name  # five steps, an ulp each


def test_scale_makes_lr_an_adamw_lr():
    """A constant gradient moves every element by about lr a step, as Adam does, at any rank."""
    for rank in (1, 4, 16, 64):
        p = torch.nn.Parameter(torch.zeros(128, 96))
        p.grad = torch.randn(128, 96, generator=torch.Generator().manual_seed(0))
        optimizer = Apollo([("w", p)], lr=1e-3, rank=rank, scale="tensor", gamma=math.inf)
        optimizer.step()
        assert float(p.detach().norm()) / math.sqrt(p.numel()) == pytest.approx(1e-3, rel=0.15)


def test_projection_is_kept_long_enough_for_momentum():
    """With a steady gradient |U| stays near Adam's. A fresh projection a step averages unrelated sketches: 0.23 of
    it."""

    def relative_norm(**options):
        p = torch.nn.Parameter(torch.zeros(128, 128))
        gradient = torch.randn(128, 128, generator=torch.Generator().manual_seed(0))
        optimizer = Apollo([("w", p)], rank=32, gamma=math.inf, **options)
        for _ in range(60):
            p.grad = gradient.clone()
            optimizer.step()
        return optimizer.last_report.update_norm / math.sqrt(p.numel())

    assert 0.8 < relative_norm() < 1.3
    assert relative_norm(gap=1) < 0.4


def test_projection_changes_every_gap_steps_by_the_global_step():
    def first_moment(step):
        parameters = model()
        give_gradients(parameters, 1)
        optimizer = Apollo(parameters.items(), rank=8)
        optimizer.set_step(step)
        optimizer.step()
        return optimizer.state_tensors()["up.weight.m"]

    assert torch.equal(first_moment(1), first_moment(199))
    assert torch.equal(first_moment(200), first_moment(399))
    assert not torch.equal(first_moment(199), first_moment(200))


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(24, 48), torch.nn.LayerNorm(48), torch.nn.Tanh(), torch.nn.Linear(48, 16)
    )
    return layers.bfloat16()


@pytest.mark.parametrize("compiled", [True, False])
def test_views_of_one_storage_are_written_without_a_trace_in_autograd(compiled, monkeypatch):
    """vLLM's merged weights: slices share a storage and may share a version counter."""
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", compiled)
    storage = (torch.randn(96, 32, generator=torch.Generator().manual_seed(0)) * 0.05).bfloat16()
    q, k = (torch.nn.Parameter(part) for part in storage.split((64, 32)))
    optimizer = Apollo([("q", q), ("k", k)], lr=1e-3, rank=16)
    optimizer.attach()
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    before, versions = storage.clone(), (q._version, k._version, storage._version)
    optimizer.begin(1)
    torch.nn.functional.linear(torch.nn.functional.linear(x, q)[:, :32], k).float().sum().backward()
    assert optimizer.finish().updated == 2
    assert (q._version, k._version, storage._version) == versions
    assert torch.equal(storage[:64], q) and torch.equal(storage[64:], k)
    assert not torch.equal(storage[:64], before[:64]) and not torch.equal(storage[64:], before[64:])


def test_second_gradient_in_a_step_is_an_error():
    layers = network()
    optimizer = Apollo(layers.named_parameters(), rank=8)
    optimizer.attach()
    loss = layers(torch.ones(1, 24, dtype=torch.bfloat16)).float().sum()
    with pytest.raises(OptimizerError, match="no step is open"):
        loss.backward(retain_graph=True)
    optimizer.zero_grad()
    optimizer.begin(1)
    loss.backward(retain_graph=True)
    with pytest.raises(OptimizerError, match="second gradient in step 1"):
        loss.backward()


def test_one_bad_parameter_does_not_hold_back_the_others():
    parameters = model()
    give_gradients(parameters, 1)
    parameters["q.weight"].grad.fill_(math.nan)
    parameters["conv1d.weight"].grad = None
    before = {name: p.detach().clone() for name, p in parameters.items()}
    optimizer = Apollo(parameters.items(), lr=1e-2, rank=8)
    optimizer.step()
    assert optimizer.last_report.updated == len(SHAPES) - 2 and optimizer.last_report.skipped == ["q.weight"]
    unchanged = [name for name, p in parameters.items() if torch.equal(p, before[name])]
    assert unchanged == ["q.weight", "conv1d.weight"]


def update_norms(scales, shape=(512, 64), **options):
    """|U| of each step of a matrix, corrections included, for gradients of these norms; and the weights."""
    p = torch.nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16))
    optimizer, norms = Apollo([("w", p)], lr=1e-4, **{"rank": 16, **options}), []
    for step, scale in enumerate(scales, 1):
        g = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        p.grad = (g * (scale / math.sqrt(g.numel()))).bfloat16()
        optimizer.set_step(step)
        optimizer.step()
        norms.append(optimizer.last_report.update_norm)
    return norms, p.detach()


def ratios(ours, others):
    return [one / other for one, other in zip(ours, others, strict=True)]


ORDINARY, BEFORE, AFTER = 1e-2, 80, 12


@pytest.mark.parametrize("small", [1e-7, 1e-6, 1e-5, 1e-4])
def test_a_nearly_memorised_example_throttles_no_later_one(small):
    """Once updates are of one size the limiter has no part in what follows. What is left is Adam's: a first moment
    that took a gradient of nearly zero in."""
    with_it, without = [*[ORDINARY] * BEFORE, small, *[ORDINARY] * AFTER], [ORDINARY] * (BEFORE + 1 + AFTER)
    (limited, _), (free, _), (calm, _) = (
        update_norms(with_it),
        update_norms(with_it, gamma=math.inf),
        update_norms(without),
    )
    later = slice(BEFORE + 1, None)
    assert ratios(limited[later], free[later]) == pytest.approx([1.0] * AFTER, abs=0.02)
    assert ratios(limited[later], calm[later])[3:] == pytest.approx([1.0] * (AFTER - 3), abs=0.05)
    assert min(ratios(limited[later], calm[later])) > 0.9


@pytest.mark.parametrize("small", [1e-7, 1e-6])
def test_nor_while_the_limiter_lets_updates_grow(small):
    """The matrix at which it was found. The correction of the first steps falls, and updates grow by 1 % a step."""
    scales = [ORDINARY] * 18
    calm, _ = update_norms(scales, (4096, 256), rank=64)
    scales[11] = small
    found, _ = update_norms(scales, (4096, 256), rank=64)
    assert ratios(found[12:], calm[12:]) == pytest.approx([1.0] * 6, abs=0.05)


def test_ordinary_gradients_are_limited_as_in_the_paper():
    """To the bit, as long as no update falls by more than 3 %; here the limiter acts, first and when gradients grow."""
    scales = [ORDINARY * factor for factor in (*[1.0] * 40, *[3.0] * 10)]
    papers, ours = (update_norms(scales, limiter_rule=rule) for rule in ("growth", "envelope"))
    assert papers[0] == ours[0] and torch.equal(papers[1], ours[1])
    free, _ = update_norms(scales, gamma=math.inf)
    assert free[-1] > 1.1 * ours[0][-1], "the limiter has to act"


def test_state_round_trips_through_safetensors_and_refuses_what_does_not_fit(tmp_path):
    from safetensors.torch import load_file, save_file

    parameters = model()
    optimizer = Apollo(parameters.items(), rank=8)
    run(optimizer, parameters, range(1, 4))
    save_file(optimizer.state_tensors(), tmp_path / "state.safetensors")
    loaded = load_file(tmp_path / "state.safetensors")
    fresh = Apollo(model().items(), rank=8)
    assert fresh.state_bytes() == optimizer.state_bytes() == sum(t.nbytes for t in loaded.values())
    fresh.load_state_tensors(loaded)
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in fresh.state_tensors().items())
    assert fresh.state_tensors()["up.weight.m"].shape == (48, 8) and fresh.state_tensors()["down.weight.m"].shape == (
        8,
        64,
    )

    def refused(tensors, match, **options):
        target = Apollo(model().items(), **{"rank": 8, **options})
        with pytest.raises(StateRefused, match=match):
            target.load_state_tensors(tensors)
        assert all(not t.any() for name, t in target.state_tensors().items() if name.endswith((".m", ".t")))

    refused(
        {**loaded, "down.weight.v": loaded["down.weight.v"].bfloat16()},
        r"dtype of down.weight.v is torch.bfloat16.*float32",
    )
    refused({**loaded, "up.weight.m": torch.zeros(48, 9)}, r"shape of up.weight.m is \(48, 9\).*\(48, 8\)")
    refused(loaded, r"\(8, 64\).*\(4, 64\)", rank=4)
    refused(
        {name: t for name, t in loaded.items() if name != "norm.weight.v"},
        "1 missing, 0 unknown, such as norm.weight.v",
    )
    refused({**loaded, "other.weight.m": torch.zeros(1)}, "0 missing, 1 unknown, such as other.weight.m")
    fresh.load_state_tensors({"other.weight.m": torch.zeros(1)}, strict=False)
    saved = optimizer.state_dict()
    for change, match in (
        ({"version": 99}, "version is 99.* 1 here"),
        ({"optimizer": "adamw"}, "optimizer is adamw .* apollo here"),
        ({"param_groups": []}, "number of parameter groups is 0"),
    ):
        with pytest.raises(StateRefused, match=match):
            fresh.load_state_dict({**saved, **change})
    with pytest.raises(StateRefused, match="rank is 8 in the saved state and 4 here"):
        Apollo(model().items(), rank=4).load_state_dict(saved)
    with pytest.raises(StateRefused, match="moments is float32 in the saved state and bfloat16 here"):
        Apollo(model().items(), rank=8, moments="bfloat16").load_state_dict(saved)
    with pytest.raises(StateRefused, match="rounding is stochastic in the saved state and master here"):
        Apollo(model().items(), rank=8, rounding="master").load_state_dict(saved)


def test_works_as_a_normal_optimizer():
    parameters = model()
    groups = [
        {"params": [(n, p) for n, p in parameters.items() if n != "up.weight"], "lr": 1e-3},
        {"params": [("up.weight", parameters["up.weight"])], "lr": 0.0, "rank": 4},
    ]
    optimizer = Apollo(groups, rank=8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    before = {name: p.detach().clone() for name, p in parameters.items()}

    def closure():
        loss = sum(p.float().square().sum() for p in parameters.values())
        loss.backward()
        return loss

    assert optimizer.step(closure) > 0
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 5e-4
    assert optimizer.state_tensors()["up.weight.m"].shape == (48, 4)
    assert [name for name, p in parameters.items() if torch.equal(p, before[name])] == ["up.weight"]


def test_a_group_is_added_whole_or_not_at_all():
    parameters = model()
    first = [(name, p) for name, p in parameters.items() if name != "down.weight"]
    optimizer = Apollo(first, lr=1e-3, rank=8)
    extra = torch.nn.Parameter(torch.zeros(16, 16))
    for group, match in (
        (
            {"params": [("new", extra), ("q.weight", torch.nn.Parameter(torch.zeros(2)))]},
            "two parameters are named 'q.weight'",
        ),
        ({"params": [("new", extra)], "rank": 0}, "rank = 0"),
        ({"params": [extra]}, "without names"),
        ({"params": [("new", extra), ("tied", extra)]}, "'tied' is the parameter 'new'"),
    ):
        before = set(optimizer.state_tensors())
        with warnings.catch_warnings(), pytest.raises(ValueError, match=match):
            warnings.simplefilter("ignore")  # torch's, about the parameter that is there twice
            optimizer.add_param_group(group)
        assert set(optimizer.state_tensors()) == before and len(optimizer.param_groups) == 1
        assert set(optimizer.state) == {p for _, p in first}
    optimizer.add_param_group({"params": [("down.weight", parameters["down.weight"])]})
    whole = model()
    run(optimizer, parameters, range(1, 4))
    run(Apollo(whole.items(), lr=1e-3, rank=8), whole, range(1, 4))
    assert same_bits(parameters, whole)
    handle = optimizer.attach()
    with pytest.raises(OptimizerError, match="hooks are attached"):
        optimizer.add_param_group({"params": [("new", extra)]})
    with pytest.raises(OptimizerError, match="attached already"):
        optimizer.attach()
    handle.remove()
    optimizer.add_param_group({"params": [("new", extra)]})
    assert optimizer.attach() is not None


def test_a_dropped_optimizer_frees_its_state_at_once():
    """A new one is made where the old one was; the state of both may not fit."""
    layers = network()
    optimizer = Apollo(layers.named_parameters(), rank=8)
    handle = optimizer.attach()
    state = weakref.ref(optimizer.state_tensors()["0.weight.m"])
    gc.disable()  # a cycle would live until the collector comes by
    try:
        handle.remove()
        del optimizer, handle
        assert state() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("compiled", [True, False])
def test_block_size_does_not_change_a_bit(compiled, monkeypatch):
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", compiled)
    results = []
    for elements in (projector.BLOCK_ELEMENTS, 256, 64, 1):
        monkeypatch.setattr(projector, "BLOCK_ELEMENTS", elements)
        monkeypatch.setattr(
            rounding, "write_reference_", partial(write_reference_, block=elements)
        )  # bound its default at import
        parameters = model()
        run(Apollo(parameters.items(), lr=1e-3, rank=8), parameters, range(1, 6))
        results.append(parameters)
    assert all(same_bits(results[0], other) for other in results[1:])


@pytest.mark.parametrize("scale", ["channel", "tensor"])
def test_bf16_moments_follow_float32_ones(scale):
    """A step's relative error is that of bf16 (2^-8); it does not grow, because the rounding is unbiased."""
    norms = {}
    for kind in ("float32", "bfloat16"):
        p = torch.nn.Parameter(torch.zeros(64, 96))
        optimizer = Apollo([("w", p)], lr=1e-3, rank=16, scale=scale, gamma=math.inf, moments=kind)
        steady = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
        for step in range(1, 151):
            p.grad = steady + torch.randn(64, 96, generator=torch.Generator().manual_seed(step))
            optimizer.step()
        norms[kind] = (p.detach().clone(), optimizer)
    (full, wide), (half, narrow) = norms["float32"], norms["bfloat16"]
    assert float((full - half).norm() / full.norm()) < 0.01
    assert narrow.state_tensors()["w.m"].dtype == narrow.state_tensors()["w.v"].dtype == torch.bfloat16
    assert narrow.state_bytes() - 16 == (wide.state_bytes() - 16) / 2  # 16: t and norm


def test_bad_input_is_refused_with_the_value():
    weight = torch.nn.Parameter(torch.zeros(8, 8))
    for options, match in (
        ({"rank": 0}, "rank = 0"),
        ({"lr": math.nan}, "lr = nan"),
        ({"scale": "row"}, "scale = 'row'"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"gap": 0, "gamma": 0.5}, "gap = 0 is out of range; gamma = 0.5"),
        ({"rounding": "up"}, "rounding = 'up'"),
        ({"moments": "8bit"}, "moments = '8bit'"),
        ({"weight_decay": math.nan}, "weight_decay = nan"),
        ({"round_to": {"x": torch.bfloat16}}, "not optimized.*x"),
        ({"round_to": {"w": torch.float16}}, "cannot be rounded to torch.float16"),
    ):
        with pytest.raises(OptimizerError, match=match):
            Apollo([("w", weight)], **options)
    with pytest.raises(OptimizerError, match="no names"):
        Apollo([weight])
    with pytest.raises(OptimizerError, match="two parameters are named 'w'"):
        Apollo([("w", weight), ("w", torch.nn.Parameter(torch.zeros(3)))])
    with pytest.raises(OptimizerError, match=r"not contiguous.*strides \(1, 8\)"):
        Apollo([("w", torch.nn.Parameter(torch.zeros(8, 8).t()[:4]))])
    with pytest.raises(OptimizerError, match="float16"):
        Apollo([("w", torch.nn.Parameter(torch.zeros(8, 8, dtype=torch.float16)))])
    with pytest.raises(OptimizerError, match="numbered from 1"):
        Apollo([("w", weight)]).begin(0)
