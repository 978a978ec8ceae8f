"""Steps with row gradients and steps with dense ones leave the same bits, in weights and in optimizer state."""

from contextlib import nullcontext
from itertools import product
from typing import Any

import pytest
import torch
from support.effort import cases
from support.small_models import small_model, tokens_of
from torch import Tensor

from apollod.trainer.kernels import kernels_cpu
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.optim.adafactor import Adafactor
from apollod.trainer.optim.adamw import AdamW
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.open_step import OptimizerError
from apollod.trainer.optim.row_gradient import FactoredRows, RowGradient, RowSum, SparseRows

EMBEDDING = "model.embed_tokens.weight"


class Dense(Apollo):
    """APOLLO, which takes gradients whole."""

    def takes_rows(self, parameter: Tensor) -> bool:
        return False


class Watched(Apollo):
    """APOLLO, which notes what came in rows."""

    def _apply(self, step: Any, gradient: Any) -> Any:
        if isinstance(gradient, RowGradient):
            came.append(step.name)
        return super()._apply(step, gradient)


came: list[str] = []


def learn(
    kind: Any, options: dict[str, Any], batches: int = 1, steps: int = 2, **model_options: Any
) -> dict[str, Tensor]:
    """Weights and state after some steps, each on `batches` examples of its own."""
    model = small_model(**model_options)
    options = {"rank": 16, **options} if issubclass(kind, Apollo) else options
    optimizer = kind([(n, p) for n, p in model.named_parameters() if p.requires_grad], lr=1e-2, seed=3, **options)
    optimizer.attach()
    for step in range(1, steps + 1):
        optimizer.begin(step, 1e-2)
        for batch in range(batches):
            with optimizer.accumulating() if batch < batches - 1 else nullcontext():
                loss_of(model, tokens_of(model, 40, seed=10 * step + batch), optimizer).backward()
        report = optimizer.finish()
        assert report.updated == len(optimizer.state) and not report.skipped
        assert all(p.grad is None for p in model.parameters())
    norms = {"norm": torch.tensor(report.update_norm), "gradient": torch.tensor(report.grad_norm, dtype=torch.float64)}
    return {name: p.data for name, p in model.named_parameters()} | optimizer.state_tensors() | norms


def test_a_sum_of_rows_has_the_bits_of_the_dense_sum() -> None:
    """Zeros of both signs included; rows that one part has, and rows that it does not. (What is not finite is not
    used.)"""
    values = torch.tensor([0.0, -0.0, 1.5, -1.5, 0.1, 3e38, -1e-38], dtype=torch.bfloat16)
    whole, few = torch.cartesian_prod(values, values).t().contiguous().view(2, 7, 7)
    factored = FactoredRows(whole.shape, lambda first, last: torch.eye(7, dtype=torch.bfloat16)[:, first:last], whole)
    dense = SparseRows(whole.shape, torch.arange(7), whole)
    for rows in (torch.tensor([0, 2, 5]), torch.arange(7), torch.arange(0)):
        sparse = SparseRows(whole.shape, rows, few[rows])
        for first, last in ((0, 7), (2, 5), (6, 7)):
            for parts in ((dense, sparse), (sparse, dense), (factored, sparse)):
                found, a, b = (part.block(first, last) for part in (RowSum(parts), *parts))
                assert torch.equal(found.view(torch.int16), (a + b).view(torch.int16)), (rows, first, parts)


@pytest.mark.parametrize(
    ("options", "tie"),
    cases(
        [
            ({}, False), ({}, True), ({"rounding": "master", "weight_decay": 0.1}, True),
            ({"rounding": "nearest"}, False), ({"moments": "bfloat16"}, False), ({"scale": "tensor"}, True),
        ],
        [
            *[({"weight_decay": 0.1}, tie) for tie in (False, True)],
            *[({"rounding": "master"}, tie) for tie in (False, True)],
            ({"rounding": "master", "weight_decay": 0.1}, False), ({"rounding": "nearest"}, True),
            ({"moments": "bfloat16"}, True), ({"scale": "tensor"}, False),
        ],
    ),
    ids=str,
)  # fmt: skip
def test_rows_leave_the_bits_of_dense_gradients(options: dict[str, Any], tie: bool) -> None:
    came.clear()
    rows, dense = learn(Watched, options, tie=tie, padding=7), learn(Dense, options, tie=tie, padding=7)
    assert set(came) == ({EMBEDDING} if tie else {EMBEDDING, "lm_head.weight"}) and len(came) == 2 * len(set(came))
    assert rows.keys() == dense.keys()
    for name, tensor in dense.items():
        assert torch.equal(rows[name], tensor), name
    assert not torch.equal(rows[EMBEDDING], small_model(tie=tie, padding=7).state_dict()[EMBEDDING])


@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
def test_so_does_a_batch_of_several_examples(tie: bool) -> None:
    rows, dense = learn(Apollo, {}, batches=3, tie=tie), learn(Dense, {}, batches=3, tie=tie)
    for name, tensor in dense.items():
        assert torch.equal(rows[name], tensor), name


def test_so_do_the_eager_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = learn(Apollo, {}, steps=1)
    monkeypatch.setattr(kernels_cpu, "AVAILABLE", False)
    rows, dense = learn(Apollo, {}, steps=1), learn(Dense, {}, steps=1)
    for name, tensor in dense.items():
        assert torch.equal(rows[name], tensor), name
        assert tensor.dtype == torch.float64 or not tensor.dim() or torch.equal(compiled[name], tensor), name


OTHERS: list[tuple[Any, dict[str, Any]]] = [
    (AdamW, {}), (AdamW, {"moments": "bfloat16", "weight_decay": 0.1}), (AdamW, {"rounding": "master"}),
    (Adafactor, {}), (Adafactor, {"rounding": "nearest", "weight_decay": 0.1}),
]  # fmt: skip
PAIRED = [
    (OTHERS[0], (48, True), False), (OTHERS[1], (48, False), True), (OTHERS[2], (32, True), True),
    (OTHERS[3], (48, True), True), (OTHERS[3], (64, True), False), (OTHERS[4], (48, False), False),
]  # fmt: skip
"""Each optimizer, each width, compiled and eager, tied and untied, once at least; the long run takes all
combinations."""


@pytest.mark.parametrize(
    ("other", "how", "tie"),
    cases(
        PAIRED,
        [
            variant
            for variant in product(OTHERS, [(32, True), (48, True), (64, True), (48, False)], [False, True])
            if variant not in PAIRED
        ],
    ),
    ids=str,
)
def test_so_do_the_other_optimizers(
    other: tuple[Any, dict[str, Any]], how: tuple[int, bool], tie: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Working blocks end where they do in a dense gradient, whatever the width of a row."""
    (kind, options), (width, compiled) = other, how
    if not compiled:
        monkeypatch.setattr(kernels_cpu, "AVAILABLE", False)
    asked: list[str] = []
    apply = kind._apply

    def watched(self: Any, step: Any, gradient: Any) -> Any:
        if isinstance(gradient, RowGradient):
            asked.append(step.name)
        return apply(self, step, gradient)

    monkeypatch.setattr(kind, "_apply", watched)
    rows = learn(kind, options, tie=tie, padding=7, hidden=width)
    assert len(asked) == (2 if tie else 4)
    monkeypatch.setattr(kind, "takes_rows", lambda self, parameter: False)
    dense = learn(kind, options, tie=tie, padding=7, hidden=width)
    assert len(asked) == (2 if tie else 4) and rows.keys() == dense.keys()
    for name, tensor in dense.items():
        assert torch.equal(rows[name], tensor), name


def test_the_padding_row_is_not_learned() -> None:
    model = small_model(padding=5)
    optimizer = Apollo(model.named_parameters(), lr=1e-2, rank=16)
    optimizer.attach()
    before = model.get_input_embeddings().weight.detach().clone()
    example = tokens_of(model, 40)
    example.ids[3] = 5
    optimizer.begin(1)
    loss_of(model, example, optimizer).backward()
    optimizer.finish()
    changed = (model.get_input_embeddings().weight != before).any(1).nonzero()[:, 0].tolist()
    assert changed and 5 not in changed and set(changed) <= set(example.ids)


def test_rows_that_an_example_does_not_use_keep_their_weights_and_their_moments_decay() -> None:
    model = small_model()
    optimizer = Apollo([(EMBEDDING, model.get_input_embeddings().weight)], lr=1e-2, rank=16)
    optimizer.attach()
    first, second = tokens_of(model, 40, seed=1), tokens_of(model, 40, seed=2)
    only_first = sorted(set(first.ids) - set(second.ids))
    for step, example in ((1, first), (2, second)):
        optimizer.begin(step)
        if step == 2:
            weight, before = (
                model.get_input_embeddings().weight.detach().clone(),
                {k: t.clone() for k, t in state(optimizer).items()},
            )
        loss_of(model, example, optimizer).backward()
        optimizer.finish()
    assert torch.equal(model.get_input_embeddings().weight[only_first], weight[only_first])
    for moment, beta in (("m", 0.9), ("v", 0.999)):
        kept = before[moment][only_first]
        assert torch.equal(state(optimizer)[moment][only_first], kept * beta) and kept.abs().max() > 0


def state(optimizer: Apollo) -> dict[str, Tensor]:
    return {name.rpartition(".")[2]: tensor for name, tensor in optimizer.state_tensors().items()}


def test_a_gradient_that_comes_both_ways_is_an_error() -> None:
    model = small_model()
    weight = model.get_input_embeddings().weight
    optimizer = Apollo([(EMBEDDING, weight)], lr=1e-2, rank=16)
    optimizer.attach()
    optimizer.begin(1)
    loss = loss_of(model, tokens_of(model, 40), optimizer) + weight.float().sum() * 1e-3
    with pytest.raises(OptimizerError, match="second gradient"):
        loss.backward()


def test_a_refused_loss_leaves_nothing_announced() -> None:
    """Otherwise the next step would wait for gradients of the one before."""
    model = small_model()
    optimizer = Apollo(model.named_parameters(), lr=1e-2, rank=16)
    optimizer.attach()
    loss_of(model, tokens_of(model, 40), optimizer)
    optimizer.zero_grad()
    optimizer.begin(1)
    loss_of(model, tokens_of(model, 40), optimizer).backward()
    assert optimizer.finish().updated == len(optimizer.state)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    model = small_model()
    optimizer = Apollo(model.named_parameters(), lr=1e-2, rank=16)
    optimizer.attach()
    before = {name: tensor.clone() for name, tensor in optimizer.state_tensors().items()}
    optimizer.begin(1)
    (loss_of(model, tokens_of(model, 40), optimizer) * float("inf")).backward()
    report = optimizer.finish()
    assert {EMBEDDING, "lm_head.weight"} <= set(report.skipped) and not report.updated
    for name, tensor in optimizer.state_tensors().items():
        assert torch.equal(tensor, before[name]), name
    for name, weight in small_model().state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name


def test_small_vocabularies_keep_dense_gradients() -> None:
    came.clear()
    model = small_model(vocabulary=4096)
    optimizer = Watched(model.named_parameters(), lr=1e-3, rank=16)
    optimizer.attach()
    optimizer.begin(1)
    loss_of(model, tokens_of(model, 40), optimizer).backward()
    assert optimizer.finish().updated == len(optimizer.state) and not came
