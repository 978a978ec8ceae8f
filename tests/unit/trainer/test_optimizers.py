"""The optimizers beside APOLLO as mathematics, and what all of them promise: rounding, repeatability, refusals."""

from __future__ import annotations

import io
import math
import sys
from itertools import product
from typing import get_args

import pytest
import torch
from safetensors.torch import load, save
from support.effort import cases
from support.gradients import give_gradients, model, same_bits
from support.optimizers import KINDS, WIDE, every_kind, needs_bitsandbytes

from apollod.core.settings import OptimizerName
from apollod.model.memory_table import PARAMETER_STATE
from apollod.trainer.kernels import kernels_cpu
from apollod.trainer.optim import moments, projector
from apollod.trainer.optim.adafactor import Adafactor
from apollod.trainer.optim.adamw import AdamW
from apollod.trainer.optim.moments import QuantizerMissing
from apollod.trainer.optim.named_optimizer import NamedOptimizer, StateRefused
from apollod.trainer.optim.open_step import OptimizerError
from apollod.trainer.optim.optimizers import OPTIMIZERS, make_optimizer, misfit
from apollod.wire.messages import OptimizerSettings

ROUNDINGS = ("stochastic", "nearest", "master")
every_rounding = pytest.mark.parametrize("rounding", ROUNDINGS)


@pytest.fixture(autouse=True)
def one_thread():
    """Matrices here are small; on a busy machine threads would do nothing but wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def settings(kind: str, **options) -> OptimizerSettings:
    return OptimizerSettings(name=kind.partition("-")[0], **KINDS[kind], **options)


def made(kind: str, parameters, lr=1e-3, round_to=None, **options) -> NamedOptimizer:
    optimizer = make_optimizer(settings(kind, **options), list(parameters.items()), round_to)
    optimizer.begin(1, lr)
    return optimizer


def run(optimizer: NamedOptimizer, parameters, steps: range) -> None:
    for step in steps:
        give_gradients(parameters, step, shapes=WIDE)
        optimizer.set_step(step)
        optimizer.step()


# --- formulas -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_equals_its_formulas_and_torch(weight_decay):
    lr, (b1, b2), eps = 1e-3, (0.8, 0.95), 1e-4  # an eps that shows
    ours, theirs = model(torch.float32), model(torch.float64)
    optimizer = AdamW(ours.items(), lr=lr, betas=(b1, b2), eps=eps, weight_decay=weight_decay)
    peer = torch.optim.AdamW(theirs.values(), lr=lr, betas=(b1, b2), eps=eps, weight_decay=weight_decay)
    start = {name: p.detach().double() for name, p in ours.items()}
    moments = {name: [p.clone(), torch.zeros_like(p), torch.zeros_like(p)] for name, p in start.items()}
    for t in range(1, 11):
        give_gradients(ours, t, scale=1e-3 if t < 4 else 1e-2)
        squares = 0.0
        for name, (w, m, v) in moments.items():
            g = ours[name].grad.double()
            theirs[name].grad = g
            m.copy_(b1 * m + (1 - b1) * g)
            v.copy_(b2 * v + (1 - b2) * g * g)
            u = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + eps)
            w.copy_(w * (1 - lr * weight_decay) - lr * u)
            squares += float(u.square().sum())
        optimizer.step()
        peer.step()
        assert optimizer.last_report.update_norm == pytest.approx(math.sqrt(squares), rel=1e-5)
    for name, p in ours.items():
        moved, expected = p.detach().double() - start[name], moments[name][0] - start[name]
        assert float((moved - expected).norm() / expected.norm()) < 1e-5, name
        assert float((theirs[name].detach() - start[name] - expected).norm() / expected.norm()) < 1e-6, name


@pytest.mark.parametrize("clip", [1.0, 0.3])
def test_adafactor_equals_its_formulas(clip):
    lr, weight_decay = 1e-2, 0.1
    parameters = model(torch.float32)
    optimizer = Adafactor(parameters.items(), lr=lr, clip=clip, weight_decay=weight_decay)
    start = {name: p.detach().double() for name, p in parameters.items()}
    oracle = {name: {"w": w.clone()} for name, w in start.items()}
    clipped = 0
    for t in range(1, 11):
        give_gradients(parameters, t, scale=1e-3 if t < 4 else 1e-2)
        beta, squares = 1 - t**-0.8, 0.0
        for name, s in oracle.items():
            g = parameters[name].grad.double()
            square = g * g + 1e-30
            if g.dim() == 2:
                s["r"] = beta * s.get("r", 0) + (1 - beta) * square.mean(1)
                s["c"] = beta * s.get("c", 0) + (1 - beta) * square.mean(0)
                v = torch.outer(s["r"], s["c"]) / s["r"].mean()
            else:
                v = s["v"] = beta * s.get("v", 0) + (1 - beta) * square
            u = g / v.sqrt()
            limit = max(1.0, float(u.square().mean().sqrt()) / clip)
            clipped += limit > 1
            s["w"] = s["w"] * (1 - lr * weight_decay) - lr * u / limit
            squares += float((u / limit).square().sum())
        optimizer.step()
        assert optimizer.last_report.update_norm == pytest.approx(math.sqrt(squares), rel=1e-5)
    assert 0 < clipped
    for name, p in parameters.items():
        moved, expected = p.detach().double() - start[name], oracle[name]["w"] - start[name]
        assert float((moved - expected).norm() / expected.norm()) < 1e-5, name


def test_adafactor_equals_torch_where_torch_takes_the_same_learning_rate():
    """torch multiplies lr by max(eps[1], rms(W)): 1 here."""
    ours, theirs = model(torch.float32), model(torch.float32)
    ours.pop("conv1d.weight"), theirs.pop("conv1d.weight")  # torch factors its last two dimensions
    optimizer = Adafactor(ours.items(), lr=1e-3)
    peer = torch.optim.Adafactor(theirs.values(), lr=1e-3, eps=(1e-30, 1.0), weight_decay=0.0)
    start = {name: p.detach().clone() for name, p in ours.items()}
    for step in range(1, 11):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        optimizer.step()
        peer.step()
    for name, p in ours.items():
        moved, expected = p.detach() - start[name], theirs[name].detach() - start[name]
        assert float((moved - expected).norm() / expected.norm()) < 1e-4, name


def test_state_has_the_promised_size():
    parameters = model(shapes={"matrix": (300, 200), "vector": (300,)})
    counters = 2 * 8
    assert made("adafactor", parameters).state_bytes() == 4 * (300 + 200 + 300) + counters
    assert made("adamw", parameters).state_bytes() == 8 * (300 * 200 + 300) + counters
    assert made("adamw-bf16", parameters).state_bytes() == 4 * (300 * 200 + 300) + counters
    assert made("apollo", parameters).state_bytes() == 8 * (300 * 8 + 300) + counters + 8
    assert made("apollo-bf16", parameters, rounding="master").state_bytes() == 4 * (
        300 * 8 + 300
    ) + counters + 8 + 4 * (60000 + 300)


@needs_bitsandbytes
def test_8_bit_moments_follow_float32_ones():
    shapes = {"matrix": (96, 64), "vector": (64,)}
    paths = {}
    for kind in ("adamw", "adamw8bit"):
        parameters = model(torch.float32, shapes=shapes)
        optimizer = made(kind, parameters)
        start = {name: p.detach().clone() for name, p in parameters.items()}
        for step in range(1, 41):
            give_gradients(parameters, step, shapes=shapes)
            for p in parameters.values():
                p.grad += 0.01  # a direction to follow, as large as the noise
            optimizer.step()
        paths[kind] = {name: p.detach() - start[name] for name, p in parameters.items()}
    full, coded = paths["adamw"]["matrix"], paths["adamw8bit"]["matrix"]
    assert 0 < float((full - coded).norm() / full.norm()) < 0.05
    assert torch.equal(paths["adamw"]["vector"], paths["adamw8bit"]["vector"])  # too small for codes
    state = optimizer.state_tensors()
    assert state["matrix.m"].dtype == torch.uint8 and state["matrix.m_scale"].shape == (24,)
    assert optimizer.state_bytes() == 2 * (96 * 64 + 4 * 24) + 2 * 4 * 64 + 2 * 8


@needs_bitsandbytes
def test_8_bits_keep_each_moment_by_the_code_that_fits_it():
    """m has a sign, v has none and takes the finer code: half a step near the largest value of a block is 0.7 % or
    0.36 %."""
    size = 5000
    state = moments.new_moments([50, 100], "8bit", torch.device("cpu"))
    m, v = (torch.randn(size, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    scale = torch.logspace(-6, 0, size)  # blocks of very different sizes
    wide = {"m": m * scale, "v": v.square() * scale}
    for part in (slice(0, 1024), slice(1024, size)):
        moments.save_moments(state, {name: values[part] for name, values in wide.items()}, part, {"m": 0, "v": 0})
    kept = moments.load_moments(state, slice(0, size))
    for name, bound in (("m", 0.0072), ("v", 0.0037)):
        for block in range(0, size, 256):
            part = slice(block, block + 256)
            error = (kept[name][part] - wide[name][part]).abs().max() / wide[name][part].abs().max()
            assert 0 < float(error) < bound, (name, block)
    assert float(kept["v"].min()) >= 0


def test_without_bitsandbytes_8_bits_are_refused_with_the_way_out(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "bitsandbytes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    moments.quantizer.cache_clear()
    with pytest.raises(QuantizerMissing, match="bitsandbytes") as caught:
        made("adamw8bit", model())
    assert "pip install bitsandbytes" in caught.value.hint and '"adamw"' in caught.value.hint


# --- what all of them promise -------------------------------------------------------------------------------------


USUAL = [
    *[(kind, "stochastic") for kind in KINDS], ("apollo", "nearest"), ("adamw", "nearest"), ("apollo-bf16", "master"),
    ("adafactor", "master"),
]  # fmt: skip
"""Every kind and every way to round; the long run takes all combinations."""


@pytest.mark.parametrize(
    ("kind", "rounding"),
    [
        pytest.param(kind, rounding, marks=needs_bitsandbytes if kind == "adamw8bit" else ())
        for kind, rounding in cases(USUAL, [pair for pair in product(KINDS, ROUNDINGS) if pair not in USUAL])
    ],
)
def test_converges_on_least_squares(kind, rounding):
    generator = torch.Generator().manual_seed(0)
    x, target = torch.randn(64, 256, generator=generator), torch.randn(80, 64, generator=generator)
    p = torch.nn.Parameter(torch.zeros(80, 64, dtype=torch.bfloat16))
    optimizer = made(kind, {"w": p}, rounding=rounding)

    def loss():
        return (p.float() @ x - target @ x).square().mean()

    start = loss().item()
    for step in range(1, 301):
        optimizer.begin(step, lr=0.03 * (1 - step / 301))
        p.grad = None
        loss().backward()
        optimizer.step()
    slower = kind == "apollo-mini" or rounding == "nearest"  # one learning rate a matrix; an end that stalls
    assert loss().item() < start / (20 if slower else 200)


@every_kind
@every_rounding
def test_resume_order_kernels_and_blocks_do_not_change_a_bit(kind, rounding, monkeypatch):
    straight = model(shapes=WIDE)
    run(made(kind, straight, rounding=rounding), straight, range(1, 9))

    resumed = model(shapes=WIDE)
    optimizer = made(kind, resumed, rounding=rounding)
    run(optimizer, resumed, range(1, 5))
    torch.save(optimizer.state_dict(), saved := io.BytesIO())
    saved.seek(0)
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", False)
    monkeypatch.setattr(projector, "BLOCK_ELEMENTS", 1024)
    backwards = dict(reversed(resumed.items()))
    other = made(kind, backwards, lr=5.0, rounding=rounding, seed=3)
    other.load_state_dict(torch.load(saved, weights_only=True))
    give_gradients(backwards, 5, shapes=WIDE)
    other.step()  # the step number is restored, too
    run(other, backwards, range(6, 9))
    assert same_bits(straight, dict(reversed(backwards.items())))


@every_kind
@every_rounding
def test_step_in_backward_equals_a_normal_step(kind, rounding):
    """On views of one storage, through safetensors in the middle, with a float32 weight on the bf16 grid."""
    x = torch.randn(5, 24, generator=torch.Generator().manual_seed(1))

    def network():
        torch.manual_seed(0)
        layers = torch.nn.Sequential(
            torch.nn.Linear(24, 48), torch.nn.LayerNorm(48), torch.nn.Linear(48, 16)
        ).bfloat16()
        layers[1].float()
        return layers, {name: torch.bfloat16 for name, p in layers.named_parameters() if p.dtype == torch.float32}

    def loss(layers):
        hidden = layers[1](layers[0](x.bfloat16()).float())
        return layers[2](hidden.bfloat16()).float().square().sum()

    (normal, to), (inside, _) = network(), network()
    first, second = (
        made(kind, dict(layers.named_parameters()), round_to=to, rounding=rounding) for layers in (normal, inside)
    )
    handle = second.attach()
    for step in range(1, 7):
        normal.zero_grad()
        loss(normal).backward()
        first.begin(step, 1e-2)
        first.step()
        if step == 4:
            state = save(second.state_tensors())
            handle.remove()
            second = made(kind, dict(inside.named_parameters()), round_to=to, rounding=rounding)
            second.load_state_tensors(load(state))
            handle = second.attach()
        second.begin(step, 1e-2)
        loss(inside).backward()
        assert second.finish() == first.last_report and first.last_report.updated == 6
        assert all(p.grad is None for p in inside.parameters())
        assert all(torch.equal(p, p.bfloat16().float()) for p in inside[1].parameters())
    assert all(torch.equal(a, b) for a, b in zip(normal.parameters(), inside.parameters(), strict=True))


@every_kind
@every_rounding
@pytest.mark.parametrize(
    ("value", "compiled"), [(0.0, True), (1e-12, False), (math.nan, False), (math.inf, True), (1e18, True)]
)
def test_zero_and_nonfinite_gradients_touch_nothing(kind, rounding, value, compiled, monkeypatch):
    """A zero would otherwise pin the limiter for thousands of steps."""
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", compiled)
    parameters = model(shapes=WIDE)
    optimizer = made(kind, parameters, rounding=rounding)
    for step in (1, 2, 3):
        give_gradients(parameters, step, shapes=WIDE)
        if step != 2:
            for p in parameters.values():
                p.grad = p.grad * 0 if value in (0.0, 1e-12) else p.grad
                p.grad.view(-1)[3] = value
        before = {name: t.clone() for name, t in {**parameters, **optimizer.state_tensors()}.items()}
        optimizer.step()
        after = {**parameters, **optimizer.state_tensors()}
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        report = optimizer.last_report
        if step == 2:
            assert report.updated == len(WIDE) and changed.issuperset(WIDE)
        else:
            assert not changed and report.skipped == sorted(WIDE)
            assert (report.skipped_zero, report.skipped_nonfinite) == ((8, 0) if value in (0.0, 1e-12) else (0, 8))
            assert (report.updated, report.update_norm, report.grad_norm) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    "kind",
    cases(
        ["apollo", "adamw-bf16", "adafactor"],
        ["apollo-bf16", "apollo-mini", "adamw", pytest.param("adamw8bit", marks=needs_bitsandbytes)],
    ),
)
def test_stochastic_rounding_and_master_weights_learn_where_nearest_stalls(kind):
    """At lr 1e-5 an update is far below half an ulp of a bf16 weight."""
    generator = torch.Generator().manual_seed(0)
    initial = (torch.randn(80, 64, generator=generator) * 0.1).bfloat16()
    target = initial.float() + 0.01 * torch.randn(80, 64, generator=generator)
    batches = [torch.randn(64, 80, generator=generator) for _ in range(8)]

    def drop(dtype, rounding):
        p = torch.nn.Parameter(initial.to(dtype, copy=True))
        optimizer = made(kind, {"w": p}, lr=1e-5, rounding=rounding)
        for step in range(300):
            x = batches[step % 8]
            residual = (p.detach().bfloat16().float() - target) @ x  # gradients always at the bf16 weights
            p.grad = (residual @ x.t() / x.shape[1]).to(dtype)
            optimizer.step()
        reached = optimizer.state_tensors().get("w.master", p.detach())
        return float((initial.float() - target).square().sum() - (reached.float() - target).square().sum())

    full = drop(torch.float32, "nearest")
    assert full > 0
    assert drop(torch.bfloat16, "stochastic") > 0.9 * full
    assert drop(torch.bfloat16, "master") == pytest.approx(full, rel=0.02)  # of a gradient rounded to bf16
    assert drop(torch.bfloat16, "nearest") < 0.1 * full


def test_a_master_weight_is_the_float32_run_and_the_weight_its_nearest():
    bf16 = model(shapes=WIDE)
    full = {name: torch.nn.Parameter(p.detach().float()) for name, p in bf16.items()}
    optimizer, wide = made("apollo", bf16, rounding="master"), made("apollo", full)
    before = {name: p.detach().clone() for name, p in bf16.items()}
    for step in range(1, 11):
        give_gradients(bf16, step, shapes=WIDE)
        for name, p in full.items():
            p.grad = bf16[name].grad.float()
        optimizer.set_step(step)
        optimizer.step()
        wide.set_step(step)
        wide.step()
    state = optimizer.state_tensors()
    for name, p in bf16.items():
        assert torch.equal(p, state[f"{name}.master"].bfloat16()) and not torch.equal(p, before[name])
        # the projection of a bf16 gradient is rounded to bf16
        moved, expected = state[f"{name}.master"] - before[name], full[name].detach() - before[name]
        assert float((moved - expected).norm() / expected.norm()) < 2**-7, name
    assert not [name for name in wide.state_tensors() if name.endswith(".master")]  # float32 weights are their own


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_choose_the_optimizer_and_its_options():
    parameters = model()
    apollo = made("apollo", parameters, scale="tensor", betas=(0.7, 0.8), weight_decay=0.1, limiter=0)
    assert (apollo.NAME, apollo.param_groups[0]["gamma"]) == ("apollo", math.inf)
    assert {k: apollo.param_groups[0][k] for k in ("rank", "scale", "betas", "weight_decay")} == {
        "rank": 8, "scale": "tensor", "betas": (0.7, 0.8), "weight_decay": 0.1,
    }  # fmt: skip
    assert made("apollo", parameters, limiter=1.5).param_groups[0]["gamma"] == 1.5
    adamw = made("adamw-bf16", parameters, betas=(0.7, 0.8), rounding="nearest")
    assert (adamw.NAME, adamw.param_groups[0]["betas"], adamw.param_groups[0]["rounding"]) == (
        "adamw",
        (0.7, 0.8),
        "nearest",
    )
    assert made("adafactor", parameters, weight_decay=0.1).param_groups[0]["weight_decay"] == 0.1
    for kind in ("apollo", "adamw", "adafactor"):
        assert made(kind, parameters, seed=5).state_dict()["seed"] == 5


def test_settings_that_cannot_work_are_refused_with_the_value():
    pairs = list(model().items())
    for options, match in (
        ({"name": "sgd"}, "no optimizer 'sgd'"),
        ({"rank": 33}, r"rank = 33 is above the smaller side of every matrix \(the widest: up.weight \[48, 32\]\)"),
        ({"name": "adafactor", "moments": "bfloat16"}, "adafactor has no choice of moments, 'bfloat16'"),
        ({"name": "adamw8bit", "moments": "bfloat16"}, "adamw8bit has no choice of moments"),
    ):
        with pytest.raises(OptimizerError, match=match) as caught:
            make_optimizer(OptimizerSettings(**options), pairs)
        assert caught.value.hint
    assert make_optimizer(OptimizerSettings(rank=32), pairs).NAME == "apollo"
    vectors = [(name, p) for name, p in pairs if p.dim() != 2]
    assert make_optimizer(OptimizerSettings(rank=33), vectors).NAME == "apollo"


def test_state_is_tied_to_what_it_depends_on():
    for saved, here, expected in (
        ({}, {"lr": 1}, None),
        ({}, {"name": "adamw"}, ("optimizer", "apollo", "adamw")),
        ({}, {"rank": 8}, ("rank", 64, 8)),
        ({}, {"scale": "tensor"}, ("scale", "channel", "tensor")),
        ({}, {"seed": 1}, ("seed", 0, 1)),
        ({}, {"moments": "bfloat16"}, ("moments", "float32", "bfloat16")),
        ({}, {"rounding": "master"}, ("rounding", "stochastic", "master")),
        ({}, {"rounding": "nearest", "betas": (0.5, 0.5), "weight_decay": 1.0, "limiter": 0.0}, None),
        ({"name": "adamw"}, {"name": "adamw", "rank": 8, "seed": 1, "scale": "tensor"}, None),
        ({"name": "adamw"}, {"name": "adamw", "moments": "bfloat16"}, ("moments", "float32", "bfloat16")),
        ({"name": "adafactor", "rounding": "master"}, {"name": "adafactor"}, ("rounding", "master", "stochastic")),
    ):
        here.pop("lr", None)
        assert misfit(OptimizerSettings(**saved), OptimizerSettings(**here)) == expected


def test_state_of_another_optimizer_is_refused():
    parameters = model()
    state = made("adamw", parameters).state_dict()
    with pytest.raises(StateRefused, match="optimizer is adamw in the saved state and adafactor here"):
        made("adafactor", parameters).load_state_dict(state)
    with pytest.raises(StateRefused, match="set of tensors"):
        made("adafactor", parameters).load_state_tensors(state["state"])
    with pytest.raises(StateRefused, match="moments is float32 in the saved state and bfloat16 here"):
        made("adamw-bf16", parameters).load_state_dict(state)


def test_every_table_of_optimizers_has_those_that_a_configuration_can_name():
    assert list(get_args(OptimizerName)) == list(OPTIMIZERS) == list(PARAMETER_STATE)
    for name, kind in OPTIMIZERS.items():
        assert kind.NAME == name and set(kind.DEPENDS_ON) <= set(OptimizerSettings.__struct_fields__)
