"""The arithmetic of adapters: what is of low rank is carried, what is not is counted, and engines know the names."""

from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from apollod.engine.gateway import adapter as module
from apollod.engine.gateway.adapter import Adapter, factors, is_linear, make
from apollod.errors import ModelRefused
from apollod.store.model_files import StoredTensor

Q = "model.layers.0.self_attn.q_proj.weight"
UP = "model.layers.1.mlp.up_proj.weight"
NORM = "model.layers.0.input_layernorm.weight"


def stored(name: str, tensor: Tensor) -> StoredTensor:
    return StoredTensor(name, "model.safetensors", str(tensor.dtype)[6:], tuple(tensor.shape), 0)


def made(base: dict[str, Tensor], now: dict[str, Tensor], rank: int) -> Adapter:
    return make([stored(name, one) for name, one in now.items()], rank, now.__getitem__, base.__getitem__)


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 12), st.integers(0, 12), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_a_change_of_no_higher_rank_is_carried_to_rounding(rows, columns, rank, less, seed):
    change = random(seed, rows, max(0, rank - less)) @ random(seed + 1, max(0, rank - less), columns)
    a, b = factors(change, rank, torch.float32)
    assert a.shape == (rank, columns) and b.shape == (rows, rank)
    assert torch.dist(b @ a, change) <= 1e-5 * (1.0 + change.norm())


@pytest.mark.parametrize(("rows", "columns"), [(40, 30), (300, 200), (64, 900)])
def test_a_change_of_higher_rank_is_carried_as_well_as_possible(rows, columns):
    """Against the whole decomposition (Eckart and Young): at most a hundredth worse, with the randomized one."""
    u, _, v = torch.linalg.svd(random(3, rows, columns), full_matrices=False)
    change = (u * 0.8 ** torch.arange(u.shape[1])) @ v
    a, b = factors(change, 8, torch.float32)
    best = sqrt(sum(0.64**n for n in range(8, u.shape[1])))
    assert best * 0.999 <= float(torch.dist(b @ a, change)) <= best * 1.01


def test_the_figure_is_what_is_missing_of_the_whole_change():
    base = {Q: random(0, 40, 30).bfloat16(), NORM: random(1, 30).bfloat16(), UP: random(2, 50, 40).bfloat16()}
    now = {name: (one.float() + random(9, *one.shape)).bfloat16() for name, one in base.items()}
    now[UP] = base[UP]
    found = made(base, now, 4)
    change = {name: now[name].float() - base[name].float() for name in now}
    product = found.tensors[f"base_model.model.{Q[:-7]}.lora_B.weight"].float() @ (
        found.tensors[f"base_model.model.{Q[:-7]}.lora_A.weight"].float()
    )
    missing = (change[Q] - product).square().sum() + change[NORM].square().sum()
    whole = sum(one.square().sum() for one in change.values())
    assert found.carried == pytest.approx(1.0 - float((missing / whole).sqrt()), abs=1e-5)
    assert found.left_out == (NORM,) and 0.0 < found.carried < 1.0


def test_what_did_not_change_is_whole_in_an_adapter_of_zeros():
    base = {Q: random(0, 40, 30).bfloat16(), NORM: random(1, 30).bfloat16()}
    found = made(base, base, 4)
    assert (found.carried, found.left_out) == (1.0, ()) and not any(one.any() for one in found.tensors.values())
    assert sorted(found.tensors) == [
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
    ]
    assert found.modules == ["q_proj"]


def test_a_small_layer_of_a_higher_rank_is_filled_with_zeros():
    base, now = {Q: torch.zeros(2, 30)}, {Q: random(5, 2, 30)}
    found = made(base, now, 64)
    assert [tuple(one.shape) for one in found.tensors.values()] == [(64, 30), (2, 64)]
    assert found.carried == pytest.approx(1.0, abs=1e-5)


def test_the_same_weights_give_the_same_bits():
    base, now = {Q: random(0, 300, 200)}, {Q: random(1, 300, 200)}
    first, _, second = made(base, now, 8), torch.randn(5), made(base, now, 8)
    assert all(torch.equal(one, second.tensors[name]) for name, one in first.tensors.items())


def test_a_large_tensor_is_compared_in_pieces(monkeypatch):
    monkeypatch.setattr(module, "ELEMENTS", 7)
    base, now = {NORM: random(0, 30), "lm_head.weight": random(1, 9, 5)}, {NORM: random(2, 30)}
    found = made(base, now | {"lm_head.weight": base["lm_head.weight"]}, 2)
    assert (found.carried, found.left_out) == (0.0, (NORM,))


def test_what_is_not_finite_is_refused_by_name():
    for name in (Q, NORM):
        with pytest.raises(ModelRefused, match=name):
            made({name: torch.zeros(3, 3)}, {name: torch.full((3, 3), float("nan"))}, 2)


@pytest.mark.parametrize(
    ("name", "shape", "linear"),
    [
        (Q, (4, 4), True),
        ("model.layers.11.linear_attn.in_proj_qkv.weight", (4, 4), True),
        ("model.language_model.layers.0.mlp.down_proj.weight", (4, 4), True),
        ("model.layers.0.self_attn.q_proj.bias", (4,), False),
        (NORM, (4,), False),
        ("model.layers.0.linear_attn.conv1d.weight", (4, 1, 4), False),
        ("model.embed_tokens.weight", (4, 4), False),
        ("lm_head.weight", (4, 4), False),
        ("model.layers.0.mlp.gate.weight", (4, 4), False),
        ("model.layers.0.mlp.experts.3.up_proj.weight", (4, 4), False),
        ("model.layers.0.mlp.experts.gate_up_proj", (2, 4, 4), False),
        ("mtp.layers.0.mlp.up_proj.weight", (4, 4), False),
        ("model.visual.blocks.0.attn.qkv.weight", (4, 4), False),
    ],
)
def test_which_tensors_are_layers_that_take_an_adapter(name, shape, linear):
    assert is_linear(stored(name, torch.zeros(shape))) == linear
