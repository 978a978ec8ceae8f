"""Small gradients wait for each other inside the backward pass: the same bits, and never many of them."""

import pytest
import torch
from torch import Tensor, nn

from apollod.trainer.optim import backward_updates
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.open_step import OptimizerError

LAYERS, WIDTH = 12, 32
ONE = WIDTH * WIDTH * 2  # bytes of a gradient


def learned(monkeypatch: pytest.MonkeyPatch, waiting_bytes: int) -> tuple[list[Tensor], list[int]]:
    """Weights after three steps, and the bytes of gradients that existed at each update."""
    monkeypatch.setattr(backward_updates, "WAITING_BYTES", waiting_bytes)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).bfloat16()
    optimizer = Apollo(model.named_parameters(), lr=1e-2, rank=8)
    optimizer.attach()
    alive: list[int] = []
    update = optimizer._update

    def watched(parameter: Tensor, gradient: Tensor) -> None:
        alive.append(sum(p.grad.nbytes for p in model.parameters() if p.grad is not None))
        update(parameter, gradient)

    optimizer._update = watched
    x = torch.randn(4, WIDTH).bfloat16()
    for step in (1, 2, 3):
        optimizer.begin(step)
        model(x).float().square().sum().backward()
        assert all(p.grad is None for p in model.parameters()) and len(alive) == LAYERS * step
        assert optimizer.finish().updated == LAYERS
    return [p.data for p in model.parameters()], alive


def test_how_many_wait_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, alive = learned(monkeypatch, 0)
    assert set(alive) == {ONE}
    some, alive = learned(monkeypatch, 3 * ONE)
    assert max(alive) == 3 * ONE
    all_of_them, alive = learned(monkeypatch, 1 << 30)
    assert max(alive) == LAYERS * ONE
    for other in (some, all_of_them):
        assert all(torch.equal(a, b) for a, b in zip(alone, other, strict=True))


def test_a_second_gradient_is_refused_while_the_first_one_waits() -> None:
    weight = nn.Parameter(torch.randn(16, 16).bfloat16())
    optimizer = Apollo([("w", weight)], rank=8)
    optimizer.attach()
    optimizer.begin(1)
    weight.grad = None
    optimizer._backward._held_back[weight] = None
    with pytest.raises(OptimizerError, match="w got a second gradient in step 1"):
        weight.float().sum().backward()


def test_what_an_error_left_waiting_is_forgotten() -> None:
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, _):
            raise RuntimeError("broken")

    first, last = (nn.Parameter(torch.randn(16, 16).bfloat16()) for _ in range(2))
    optimizer = Apollo([("first", first), ("last", last)], rank=8)
    optimizer.attach()
    optimizer.begin(1)
    with pytest.raises(RuntimeError, match="broken"):
        (Breaks.apply(first.float() @ first.float()) @ last.float()).sum().backward()
    optimizer.zero_grad()
    before = last.data.clone()
    optimizer.begin(2)
    (last.float() @ first.float()).sum().backward()
    assert optimizer.finish().updated == 2 and not torch.equal(last.data, before)
