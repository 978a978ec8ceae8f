"""A step over several examples, on the real model in a real memory file; and the optimizer's side of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.attached import attached_to, learning

from apollod.core.facts.training import StepTerms
from apollod.trainer.bind.attach import Attached
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.objective import SFT
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim import backward_updates
from apollod.trainer.optim.open_step import OptimizerError
from apollod.trainer.optim.optimizers import make_optimizer
from apollod.trainer.step import _forward, run_step
from apollod.trainer.undo.undo_ring import UndoRing
from apollod.wire.messages import OptimizerSettings

SHORT = Tokens(list(range(40, 52)), [False] * 10 + [True] * 2)
LONG = Tokens(list(range(60, 100)), [False] * 4 + [True] * 36)


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Attached:
    """Not written to."""
    return attached_to(tiny_model)


def gradients(model: Attached, backward: Callable[[], object]) -> dict[str, torch.Tensor]:
    backward()
    found = {name: parameter.grad.float() for name, parameter in model.trainable if parameter.grad is not None}
    for _, parameter in model.trainable:
        parameter.grad = None
    return found


@pytest.mark.parametrize(("together", "loss_error", "error"), [(False, 1e-6, 2e-2), (True, 1e-2, 4e-2)])
def test_loss_and_gradient_are_the_mean_over_all_learned_tokens(
    model: Attached, together: bool, loss_error: float, error: float
) -> None:
    """One after the other, or as one batch: the shorter one is filled up, which changes nothing but the last digits."""
    optimizer = make_optimizer(OptimizerSettings(rank=16), model.trainable, model.round_to)
    handle = optimizer.attach()

    def backward() -> None:
        loss, last, each = _forward(model, optimizer, [SHORT, LONG], SFT, together=together)
        losses.extend([loss, *each])
        with optimizer.accumulating():
            last.backward()

    losses: list[float] = []
    found = gradients(model, backward)
    handle.remove()
    short, long = loss_of(model.model, SHORT), loss_of(model.model, LONG)
    assert losses[1:] == pytest.approx([short.item(), long.item()], rel=1e-2 if together else 0)
    assert losses[0] == pytest.approx((2 * short.item() + 36 * long.item()) / 38, rel=loss_error)
    expected = gradients(model, lambda: ((2 * short + 36 * long) / 38).backward())
    assert found.keys() == expected.keys() and len(found) == len(model.trainable)
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() < error * gradient.norm(), name


def test_a_refused_batch_leaves_nothing_behind(tiny_model: Path) -> None:
    """Its sums of gradients would otherwise be part of the next step."""
    results = []
    for refuse in (False, True):
        model = attached_to(tiny_model)
        optimizer = learning(model)
        before = model.weights.fingerprint()
        if refuse:
            done = run_step(model, optimizer, [SHORT, LONG], 1, 1e-3, StepTerms(loss_limit=1e-3))
            assert not done.applied and done.loss is not None and "above the limit 0.001" in done.note
            assert done.fingerprint == before and all(p.grad is None for _, p in model.trainable)
        done = run_step(model, optimizer, [LONG, SHORT], 2, 1e-3, StepTerms(loss_limit=1e3))
        assert done.applied and done.targets == 38 and done.tokens == 52
        assert done.loss == pytest.approx((36 * done.losses[0] + 2 * done.losses[1]) / 38, rel=1e-6)
        assert all(p.grad is None for _, p in model.trainable)
        results.append(done.fingerprint)
    assert results[0] == results[1] != before


def test_a_parameter_that_only_an_earlier_example_used_is_updated_too() -> None:
    """As experts of a mixture are."""
    used, both = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    optimizer = make_optimizer(OptimizerSettings("adamw"), [("used", used), ("both", both)])
    optimizer.attach()
    with optimizer.accumulating():
        (used.sum() + both.sum()).backward()  # type: ignore[no-untyped-call]
    optimizer.begin(1, 0.5)
    both.sum().backward()  # type: ignore[no-untyped-call]
    report = optimizer.finish()
    assert report.updated == 2 and used.grad is None and both.grad is None
    assert torch.allclose(used, torch.full((4,), 0.5)) and report.grad_norm == pytest.approx((4 * 1 + 4 * 4) ** 0.5)


def test_a_second_gradient_within_a_step_is_still_refused() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = make_optimizer(OptimizerSettings("adamw"), [("w", weight)])
    optimizer.attach()
    with optimizer.accumulating():
        weight.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.begin(1, 0.5)
    weight.sum().backward()  # type: ignore[no-untyped-call]
    with pytest.raises(OptimizerError, match="second gradient"):
        weight.sum().backward()  # type: ignore[no-untyped-call]


def test_what_is_not_selected_gets_no_gradient_and_no_state(tiny_model: Path) -> None:
    model = attached_to(tiny_model)
    part = model.select("1", ["*.A_log"])
    names = {name for name, _ in part.trainable}
    assert names and all(".layers.1." in name and "A_log" not in name for name in names)
    assert part.round_to == {} != model.round_to
    optimizer = make_optimizer(OptimizerSettings(rank=16), part.trainable, part.round_to)
    assert {name.rpartition(".")[0] for name in optimizer.state_tensors()} == names
    optimizer.attach()
    before = {name: parameter.detach().clone() for name, parameter in part.shared}
    run_step(part, optimizer, [LONG], 1, 1e-2)
    assert {name for name, p in part.shared if not torch.equal(before[name], p)} == names
    assert not [name for name, p in part.shared if p.grad is not None]
    whole = part.select("", [])
    assert whole.trainable == whole.shared == model.shared and all(p.requires_grad for _, p in whole.trainable)


def test_weights_that_are_no_numbers_are_found(tiny_model: Path) -> None:
    model = attached_to(tiny_model)
    assert model.weights.nonfinite() == []
    names = sorted(model.weights.views)[:2]
    for name, value in zip(names, (float("nan"), float("-inf")), strict=True):
        model.weights.views[name].view(-1)[-1] = value
    assert sorted(model.weights.nonfinite()) == names


def test_what_is_known_writes_nothing(tiny_model: Path) -> None:
    """Neither weights nor moments: the next step that writes gives the same bits as without it."""
    after = []
    for known in (0, 3):
        model = attached_to(tiny_model)
        optimizer = learning(model)
        first = run_step(model, optimizer, [LONG], 1, 1e-3)
        assert first.applied and not first.known and first.loss is not None
        for _ in range(known):
            done = run_step(model, optimizer, [SHORT, LONG], 2, 1e-3, loss_min=first.loss * 2)
            assert done.known and not done.applied and done.fingerprint == first.fingerprint
            assert f"below {first.loss * 2:.6g}" in done.note and done.update_norm == 0.0
        after.append(run_step(model, optimizer, [SHORT], 3, 1e-3, loss_min=first.loss / 2).fingerprint)
    assert after[0] == after[1] != first.fingerprint


def weights_after(tiny_model: Path, number: int, again_of: int) -> tuple[str, UndoRing, str]:
    """The fingerprint after two steps, the second one numbered so; what can be undone; the fingerprint before."""
    model = attached_to(tiny_model)
    optimizer = learning(model)
    optimizer.undo = UndoRing(1 << 30)
    optimizer.undo.restart(model.weights.fingerprint())
    before = run_step(model, optimizer, [SHORT], 1, 1e-2).fingerprint
    done = run_step(model, optimizer, [LONG], number, 1e-2, StepTerms(again_of=again_of))
    assert done.step == number
    return done.fingerprint, optimizer.undo, before


def test_a_repeated_step_has_the_bits_of_the_step_that_it_repeats(tiny_model: Path) -> None:
    first, *_ = weights_after(tiny_model, 2, 0)
    again, ring, before = weights_after(tiny_model, 700, 2)
    other, *_ = weights_after(tiny_model, 700, 0)
    assert again == first != other
    assert ring.leads_to(1, before) == 1, "it is undone under its own number"
    assert ring.leads_to(700, again) == 0


def test_no_gradient_of_a_batch_waits_for_another_example(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other they do: sums of all gradients exist before the last backward pass."""
    monkeypatch.setattr(backward_updates, "WAITING_BYTES", 1)
    most: dict[bool, int] = {}
    for together in (False, True):
        model = attached_to(tiny_model)
        optimizer = learning(model)
        alive = [0]

        def count(_: object, model: Attached = model, alive: list[int] = alive) -> None:
            alive.append(sum(parameter.grad is not None for _, parameter in model.trainable))

        for _, parameter in model.trainable:
            parameter.register_hook(count)
        done = run_step(model, optimizer, [SHORT, LONG], 1, 1e-3, StepTerms(together=together))
        assert done.applied and done.targets == 38
        most[together] = max(alive)
    assert most[True] <= 2 < most[False]
