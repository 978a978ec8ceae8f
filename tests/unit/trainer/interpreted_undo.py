"""Steps of the Triton kernels kept and taken back, in Triton's interpreter: run by test_kernels_cuda.py."""

import pytest
import torch

from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.undo import undo_codec
from apollod.trainer.undo.undo_ring import UndoRing

SHAPES = {"row": (48, 40), "column": (40, 50), "norm": (7,), "narrow": (4, 90)}


def bits(values: torch.Tensor) -> torch.Tensor:
    return values.view(-1).view(torch.uint8)


@pytest.mark.parametrize("rounding", ["stochastic", "master"])
def test_steps_come_back(rounding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights by torch operations, as on a GPU; one parameter's gradient is zero, which is not known until the
    end."""
    monkeypatch.setattr(undo_codec, "PACKED_MIN", 64)
    monkeypatch.setattr(undo_codec, "kernels", lambda: None)
    generator = torch.Generator().manual_seed(0)
    weights = {
        n: torch.nn.Parameter((torch.randn(s, generator=generator) * 0.05).bfloat16()) for n, s in SHAPES.items()
    }
    optimizer = Apollo(weights.items(), lr=1e-3, rank=8, rounding=rounding, kernels="triton")
    ring = UndoRing(1 << 30)
    optimizer.undo = ring
    states = []

    def now() -> dict[str, torch.Tensor]:
        return {name: t.detach().clone() for name, t in {**weights, **optimizer.state_tensors()}.items()}

    for step in (1, 2, 3):
        states.append(now())
        for name, parameter in weights.items():
            scale = 0.0 if (step, name) == (2, "column") else 0.01
            parameter.grad = (torch.randn(parameter.shape, generator=generator) * scale).bfloat16()
        optimizer.step()
        ring.end(str(step))
        assert not torch.equal(states[-1]["row"], weights["row"])
    for before in reversed(states):
        ring.undo(1)
        assert [name for name, t in now().items() if not torch.equal(bits(t), bits(before[name]))] == []
