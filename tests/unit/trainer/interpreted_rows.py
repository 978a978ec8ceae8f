"""Gradients in rows by the Triton kernels, in Triton's interpreter: run by test_kernels_cuda.py. Blocks are small, so
that small matrices have several."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.device_waits import DeviceWaits
from support.effort import cases
from support.small_models import small_model, tokens_of
from torch import Tensor

from apollod.trainer.objectives import loss
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.optim import apollo, apollo_triton, row_gradient
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.row_gradient import FactoredRows, RowGradient, RowSum, SparseRows
from apollod.trainer.undo import undo_codec
from apollod.trainer.undo.undo_ring import UndoRing

SHAPE = (100, 18)
BLOCK = 64


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (row_gradient, loss, apollo, apollo_triton):
        monkeypatch.setattr(module, "BLOCK_ROWS", BLOCK)
    return


def randn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def sparse(seed: int) -> SparseRows:
    rows = torch.randperm(SHAPE[0], generator=torch.Generator().manual_seed(seed))[:66].sort().values
    return SparseRows(torch.Size(SHAPE), rows, randn(66, SHAPE[1], seed=seed, scale=1e-2).bfloat16())


def factored(seed: int) -> FactoredRows:
    left, right = randn(5, SHAPE[0], seed=seed, scale=1e-2).bfloat16(), randn(5, SHAPE[1], seed=seed + 1).bfloat16()
    return FactoredRows(torch.Size(SHAPE), lambda first, last: left[:, first:last], right)


def trained(
    gradients: list[Tensor | RowGradient],
    kernels: Any,
    ring: UndoRing | None = None,
    states: list[dict[str, Tensor]] | None = None,
    **options: Any,
) -> Apollo:
    """`states`: takes what there was before each step."""
    weight = torch.nn.Parameter(randn(*SHAPE, seed=9, scale=0.05).bfloat16())
    optimizer = Apollo([("w", weight)], **{"lr": 1e-2, "rank": 16, "kernels": kernels} | options)
    optimizer.undo = ring
    for step, gradient in enumerate(gradients, 1):
        if states is not None:
            states.append(everything(optimizer))
        optimizer.begin(step)
        optimizer._update(weight, gradient)
        optimizer.finish()
        if ring is not None:
            ring.end(str(step))
    return optimizer


def everything(optimizer: Apollo) -> dict[str, Tensor]:
    (weight,) = optimizer._named
    return {"weight": weight.data.clone()} | {name: t.clone() for name, t in optimizer.state_tensors().items()}


OPTIONS: list[dict[str, Any]] = cases(
    [{"weight_decay": 0.1, "moments": "bfloat16"}, {"rounding": "master", "scale": "tensor"}], [{}]
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rows_leave_the_bits_of_dense_gradients(options: dict[str, Any]) -> None:
    rows: list[Tensor | RowGradient] = [sparse(1), RowSum([sparse(2), factored(2)])]
    dense: list[Tensor | RowGradient] = [g.dense() for g in rows if isinstance(g, RowGradient)]
    found, expected = trained(rows, "triton", **options), trained(dense, "triton", **options)
    for (name, tensor), other in zip(everything(expected).items(), everything(found).values(), strict=True):
        if name == "w.norm":
            torch.testing.assert_close(other, tensor, rtol=1e-12, atol=0)
        else:
            assert torch.equal(other, tensor), name
    assert found.last_report is not None and expected.last_report is not None
    assert math.isclose(found.last_report.grad_norm, expected.last_report.grad_norm, rel_tol=1e-12)
    assert math.isclose(found.last_report.update_norm, expected.last_report.update_norm, rel_tol=1e-12)
    eager = trained(rows, "eager", **options)  # rounds its projection to bf16
    for name, tensor in everything(eager).items():
        assert (everything(found)[name].double() - tensor.double()).abs().max() <= 0.02 * tensor.double().abs().max()


def test_rows_without_a_gradient_are_not_written() -> None:
    gradient = sparse(3)
    before = randn(*SHAPE, seed=9, scale=0.05).bfloat16()
    changed = (everything(trained([gradient], "triton"))["weight"] != before).any(1).nonzero()[:, 0].tolist()
    assert changed and set(changed) <= set(gradient._rows.tolist())


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_unusable_rows_change_nothing(value: float) -> None:
    bad = sparse(4)
    bad._values.fill_(value) if value == 0 else bad._values.view(-1)[3:4].fill_(value)
    once, twice = trained([sparse(1)], "triton"), trained([sparse(1), bad], "triton")
    assert twice.last_report is not None and twice.last_report.skipped == ["w"]
    assert [name for name, t in everything(once).items() if not torch.equal(t, everything(twice)[name])] == []


def test_steps_of_rows_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device: rows are not looked at, values are packed by torch and fetched later; a dense gradient is written
    in several launches, to the same bits."""
    monkeypatch.setattr(undo_codec, "PACKED_MIN", 64)
    monkeypatch.setattr(undo_codec, "kernels", lambda: None)
    monkeypatch.setattr(apollo_triton, "WRITE_BYTES", 64 * SHAPE[1] * 2)
    ring = UndoRing(1 << 30)
    gradients: list[Tensor | RowGradient] = [sparse(1), factored(2).dense(), RowSum([sparse(2), factored(3)])]
    states: list[dict[str, Tensor]] = []
    optimizer = trained(gradients, "triton", ring, states, rounding="master")
    plain = everything(trained(gradients, "triton", rounding="master"))
    for before in [plain, *reversed(states)]:
        now = everything(optimizer)
        assert [name for name, t in before.items() if not torch.equal(t, now[name])] == []
        if len(ring):
            ring.undo(1)


def test_embedding_and_head_of_a_model_come_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of their size is made, and no device is waited for, between the loss and the report."""
    came: list[str] = []
    update = apollo_triton.DeviceStep.update

    def watched(self: Any, parameter: Any, weight: Tensor, gradient: Any, *rest: Any) -> None:
        if isinstance(gradient, RowGradient):
            came.append(parameter.name)
        update(self, parameter, weight, gradient, *rest)

    monkeypatch.setattr(apollo_triton.DeviceStep, "update", watched)
    states = []
    for kernels in ("triton", "eager"):
        model = small_model(vocabulary=200, hidden=32)
        named = [(n, p) for n, p in model.named_parameters() if n.endswith(("embed_tokens.weight", "lm_head.weight"))]
        optimizer = Apollo(named, lr=1e-2, rank=16, kernels=kernels)  # type: ignore[arg-type]
        optimizer.attach()
        optimizer.warm_up()
        came.clear()
        loss = loss_of(model, tokens_of(model, 20), optimizer)
        with DeviceWaits(model.parameters()) as seen:
            optimizer.begin(1)
            loss.backward()
        assert optimizer.finish().updated == 2
        states.append({name: p.data for name, p in named} | optimizer.state_tensors())
        if kernels == "triton":
            assert sorted(came) == sorted(name for name, _ in named)
            assert seen.waits == [] and seen.largest[torch.bfloat16] <= BLOCK * 64 < 200 * 32
    for name, tensor in states[1].items():
        assert (states[0][name].double() - tensor.double()).abs().max() <= 0.02 * tensor.double().abs().max(), name
