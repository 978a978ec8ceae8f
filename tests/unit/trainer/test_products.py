"""Products of bf16 matrices in float32: right to the last rounding, of every kind, and never a whole matrix at once."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.small_models import hybrid, small_model, tokens_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from apollod import products
from apollod.products import products_in
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.optim.apollo import Apollo

HALF_ULP = 2.0**-8  # of bf16, relative


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Several of them each way, and the last ones not full."""
    for name, size in {"ROWS": 16, "INNER": 32, "COLUMNS": 24}.items():
        monkeypatch.setattr(products, name, size)
    return


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def near(found: Tensor, wide: Tensor) -> bool:
    """One rounding to bf16 away from the float64 value, and the float32 sums' own error."""
    return bool(((found.double() - wide).abs() <= HALF_ULP * wide.abs() + 1e-5 * wide.abs().max()).all())


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("shape", [(16, 32, 24), (50, 100, 70), (1, 33, 5), (3, 0, 4)], ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_a_product_in_tiles_is_rounded_once(shape: tuple[int, int, int], transposed: tuple[bool, bool]) -> None:
    p, q, r = shape
    a = normal(q, p).t() if transposed[0] else normal(p, q)
    b = normal(r, q, seed=1).t() if transposed[1] else normal(q, r, seed=1)
    bias = normal(r, seed=2)
    right = a.double() @ b.double()
    assert products.matmul(a, b).dtype == torch.bfloat16
    assert near(products.matmul(a, b), right) and near(products.matmul(a, b, bias), right + bias.double())


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("shape", [(7, 3, 5, 4), (2, 40, 50, 30)], ids=["many at once", "one by one"])
def test_many_products(shape: tuple[int, int, int, int]) -> None:
    n, p, q, r = shape
    a, b = normal(n, p, q), normal(n, q, r, seed=1)
    assert near(products.batched(a, b), a.double() @ b.double())


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_depend_on_the_values_alone_not_on_where_they_lie(threads: int) -> None:
    """With one number of threads; libraries take another way for other alignments."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        a, b = normal(130, 1100), normal(1100, 1050, seed=1)
        found = products.matmul(a, b)
        for offset in (1, 7, 32):
            moved = [torch.cat([x.new_zeros(offset), x.flatten()])[offset:].view(x.shape) for x in (a, b)]
            assert moved[0].data_ptr() % 64 == 2 * offset % 64
            assert torch.equal(products.matmul(*moved), found), offset
    finally:
        torch.set_num_threads(before)


class Products(TorchDispatchMode):
    """Names of the products of which an operand is bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow: set[str] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        product = operation.overloadpacket in flop_registry or "attention" in str(operation) or ".mv" in str(operation)
        if product and any(isinstance(x, Tensor) and x.dtype == torch.bfloat16 for x in args):
            self.narrow.add(str(operation))
        return operation(*args, **(kwargs or {}))


OPERATIONS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "linear": (F.linear, [(2, 30, 40), (50, 40)]),
    "linear with a bias": (F.linear, [(2, 30, 40), (50, 40), (50,)]),
    "matrix and vector": (torch.mv, [(30, 40), (40,)]),
    "scaled sum": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [(30, 50), (30, 40), (40, 50)]),
    "batch": (torch.bmm, [(3, 20, 30), (3, 30, 10)]),
    "batch and sum": (torch.baddbmm, [(3, 20, 10), (3, 20, 30), (3, 30, 10)]),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), [(3, 20, 30), (3, 10, 30)]),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(1, 2, 20, 16)] * 3
    ),
    "causal convolution": (
        lambda x, w: F.conv1d(x, w, padding=3, groups=8), [(1, 8, 20), (8, 1, 4)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_values_and_gradients_are_those_of_float32_rounded(name: str) -> None:
    operation, shapes = OPERATIONS[name]
    inputs = [normal(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    wide = [x.detach().float().requires_grad_() for x in inputs]
    right = operation(*wide)
    upstream = normal(*right.shape, seed=9)
    with Products() as products, products_in("float32"):
        found = operation(*inputs)
        gradients = torch.autograd.grad(found, inputs, upstream)
    assert not products.narrow
    for mine, other in zip(
        (found, *gradients), (right, *torch.autograd.grad(right, wide, upstream.float())), strict=True
    ):
        assert mine.dtype == torch.bfloat16
        error = (mine.float() - other).abs().max() / other.abs().max()
        assert error <= 2 * HALF_ULP, float(error)  # two roundings: attention's gradients come from a rounded output


@pytest.mark.parametrize("kind", ["hybrid", "llama"])
def test_nothing_of_a_step_multiplies_bf16_matrices(kind: str) -> None:
    """Forward pass, head, backward pass and projections; a hybrid has both kinds of attention and convolutions."""
    model = hybrid("da", 400) if kind == "hybrid" else small_model()
    parameters = dict(model.named_parameters())
    optimizer = Apollo(list(parameters.items()), rank=16)
    optimizer.attach()
    tokens = tokens_of(model, 40)
    seen = {}
    for dtype in ("bf16", "float32"):
        with Products() as products, products_in(dtype):
            loss = loss_of(model, tokens, optimizer)
            optimizer.begin(1, 1e-3)
            loss.backward()
            report = optimizer.finish()
        assert report.skipped_zero == report.skipped_nonfinite == 0
        seen[dtype] = products
    assert seen["bf16"].narrow, "or this test sees nothing"
    assert not seen["float32"].narrow


def test_layers_that_are_computed_again_give_the_same_gradients() -> None:
    """In the backward pass, by the same products as before."""
    model = small_model(vocabulary=400).train()
    tokens, found = tokens_of(model, 40), []
    for again in (False, True):
        if again:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        with products_in("float32"):
            found.append(torch.autograd.grad(loss_of(model, tokens), list(model.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
