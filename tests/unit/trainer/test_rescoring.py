"""How the model says what it learned: the loss that a step would have, and nothing written."""

from pathlib import Path

import torch
from support.attached import attached_to, learning

from apollod.errors import RecordRefused
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.scoring import rescored
from apollod.trainer.step import run_step
from apollod.wire.messages import Rescore, StepExample

LINES = {
    "short": Tokens(list(range(40, 52)), [False] * 10 + [True] * 2),
    "long": Tokens(list(range(60, 100)), [False] * 4 + [True] * 36),
}


def tokens_of(example: StepExample, objective: Objective) -> Tokens:
    if example.example not in LINES:
        raise RecordRefused("its tokens are others now", "put the tokenizer back")
    return LINES[example.example]


def asked(*examples: str) -> Rescore:
    return Rescore(7, [StepExample(one, b"{}", "") for one in examples])


def test_it_is_the_loss_of_the_step_before_its_write_and_leaves_bits_gradients_and_later_steps_alone(
    tiny_model: Path,
) -> None:
    ends = []
    for scores in (False, True):
        model = attached_to(tiny_model)
        optimizer = learning(model)
        if scores:
            before = model.weights.fingerprint()
            found = rescored(model.model, tokens_of, asked("long", "short"), lambda: False)
            assert found.number == 7 and [one.tokens for one in found.scores] == [36, 2] and found.seconds > 0
            assert model.weights.fingerprint() == before and all(p.grad is None for _, p in model.trainable)
        done = [run_step(model, optimizer, [LINES[one]], n, 1e-3) for n, one in enumerate(("long", "short"), 1)]
        if scores:
            assert found.scores[0].loss == done[0].loss
            (after,) = rescored(model.model, tokens_of, asked("long"), lambda: False).scores
            assert after.loss is not None and done[0].loss is not None and after.loss < done[0].loss
        ends.append([one.fingerprint for one in done])
    assert ends[0] == ends[1]


def test_what_cannot_be_scored_says_why_and_something_else_ends_it_in_a_forward_pass(tiny_model: Path) -> None:
    model = attached_to(tiny_model).model
    found = rescored(model, tokens_of, asked("other", "short"), lambda: False)
    assert found.scores[0].loss is None and "other" in found.scores[0].reason and found.scores[1].loss is not None
    looks = iter(range(10_000))
    modules = sum(1 for _ in model.modules())
    ended = rescored(model, tokens_of, asked("short", "long", "short"), lambda: next(looks) > 1.5 * modules)
    assert [one.example for one in ended.scores] == ["short"]
    assert rescored(model, tokens_of, asked("long"), lambda: True).scores == ()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    (none,) = rescored(model, tokens_of, asked("short"), lambda: False).scores
    assert (none.loss, none.reason) == (None, "the loss is not finite")
