"""How far a step of an example would move a loss, to first order, against steps that are made in float64."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from support.apollo_oracle import Oracle
from support.attached import attached_to, learning
from support.small_models import small_model, tokens_of

from apollod.errors import RecordRefused
from apollod.trainer import ranking
from apollod.trainer.bind.attach import Attached
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.optimizers import make_optimizer
from apollod.trainer.ranking import Trial, Watched, ranked, watched_loss
from apollod.trainer.step import run_step
from apollod.wire.messages import OptimizerSettings, Rank, StepExample, Suspect, WatchedItem

LR = 1e-5
EXAMPLES = 12


def spearman(one: list[float], other: list[float]) -> float:
    ranks = [torch.tensor(values).argsort().argsort().double() for values in (one, other)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def probe(model: Any) -> Tokens:
    return tokens_of(model, 24, seed=100)


def example(model: Any, seed: int) -> Tokens:
    """Every other one asks what the probe asks, and answers otherwise."""
    own, asked_too = tokens_of(model, 24, seed), probe(model).ids[:12]
    return own if seed % 2 else Tokens(asked_too + own.ids[12:], own.mask)


def loss64(model: Any, tokens: Tokens) -> torch.Tensor:
    ids = torch.tensor([tokens.ids])
    logps = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return -logps[torch.tensor(tokens.mask[1:])].mean()


def exact() -> list[float]:
    """What the loss of the probe gains by one step of APOLLO with each example, all in float64."""
    model = small_model(hidden=128).double()
    kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    gained = list[float]()
    with torch.no_grad():
        before = loss64(model, probe(model))
    for seed in range(EXAMPLES):
        loss64(model, example(model, seed)).backward()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                oracle = Oracle(name, parameter, LR, 64, "channel", 0.0, 200, math.inf, "envelope")
                oracle.step(1, parameter.grad)
                parameter.copy_(oracle.w)
                parameter.grad = None
            gained.append(float(loss64(model, probe(model)) - before))
            for name, parameter in model.named_parameters():
                parameter.copy_(kept[name])
    return gained


def scores(settings: OptimizerSettings) -> list[float]:
    """The same, told without a step, of weights in bf16."""
    model = small_model(hidden=128)
    optimizer = make_optimizer(settings, list(model.named_parameters()))
    optimizer.attach()
    watched, found = Watched(), list[float]()
    before = [parameter.clone() for parameter in model.parameters()]
    state = {name: tensor.clone() for name, tensor in optimizer.state_tensors().items()}
    with optimizer.trying(watched):
        loss_of(model, probe(model), optimizer).backward()
    for seed in range(EXAMPLES):
        trial = Trial(optimizer, watched, LR)
        with optimizer.trying(trial):
            loss_of(model, example(model, seed), optimizer).backward()
        found.append(trial.score)
    assert all(torch.equal(one, now) for one, now in zip(before, model.parameters(), strict=True))
    assert all(torch.equal(state[name], now) for name, now in optimizer.state_tensors().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    return found


@pytest.fixture(scope="module")
def gained() -> list[float]:
    return exact()


def test_the_score_is_what_a_step_in_float64_does(gained: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole gradients in place of sketches: what is left is the rounding of bf16, and another projection in APOLLO."""
    monkeypatch.setattr(ranking, "RANK", 1 << 20)
    found = scores(OptimizerSettings(rank=64))
    assert spearman(found, gained) > 0.95
    sizes = torch.tensor([found, gained]).double()
    assert float(torch.corrcoef(sizes)[0, 1]) > 0.98 and 0.7 < float(sizes[0].norm() / sizes[1].norm()) < 1.4


def test_a_sketch_ranks_them_alike(gained: list[float]) -> None:
    found = scores(OptimizerSettings(rank=64))
    assert ranking.RANK == 64 and spearman(found, gained) > 0.8


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_other_optimizers_tell_of_their_own_steps(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At fresh moments AdamW moves each weight by the rate, whatever the gradient."""
    sketched = scores(OptimizerSettings(name=name))
    monkeypatch.setattr(ranking, "RANK", 1 << 20)
    whole = scores(OptimizerSettings(name=name))
    assert spearman(sketched, whole) > 0.8 and min(map(abs, whole)) > 0.0


# --- a message ------------------------------------------------------------------------------------------------------

LINES = {
    "short": Tokens(list(range(40, 52)), [False] * 10 + [True] * 2),
    "long": Tokens(list(range(60, 100)), [False] * 4 + [True] * 36),
}


def lines(example: StepExample, objective: Objective) -> Tokens:
    if example.example not in LINES:
        raise RecordRefused("its tokens are others now", "put the tokenizer back")
    return LINES[example.example]


def asked(*names: str, rate: bool = True) -> Rank:
    items = [WatchedItem(tuple(range(20, 30)), 4, 2.0, rate)]
    return Rank(3, 7, items, [Suspect(StepExample(one, b"{}", ""), "sft", 1e-3) for one in names])


def attached(tiny_model: Path) -> tuple[Attached, NamedOptimizer]:
    model = attached_to(tiny_model)
    return model, learning(model)


def test_a_ranking_leaves_bits_and_later_steps_alone_and_says_that_it_is_at_work(tiny_model: Path) -> None:
    ends, said = [], list[int]()
    for ranks in (False, True):
        model, optimizer = attached(tiny_model)
        done = [run_step(model, optimizer, [LINES["long"]], 1, 1e-3)]
        if ranks:
            before = model.weights.fingerprint()
            found = ranked(model, optimizer, lines, asked("long", "other", "short"), 0.0, lambda: said.append(1))
            assert (found.incident, found.number, found.error) == (3, 7, "") and found.seconds > 0.0
            assert set(found.scores) == {"long", "short"} and "tokens are others" in found.unscored["other"]
            assert all(found.scores.values()) and len(said) == 4
            known = ranked(model, optimizer, lines, asked("long"), 1e9)
            assert known.scores == {"long": 0.0}, "what is known writes nothing"
            assert model.weights.fingerprint() == before and all(p.grad is None for _, p in model.trainable)
        done.append(run_step(model, optimizer, [LINES["short"]], 2, 1e-3))
        ends.append([one.fingerprint for one in done])
    assert ends[0] == ends[1]


def test_an_example_harms_what_it_contradicts_and_helps_itself(tiny_model: Path) -> None:
    model, optimizer = attached(tiny_model)
    long = LINES["long"]
    loss: Callable[[bool], Rank] = lambda rate: Rank(  # noqa: E731
        1, 1, [WatchedItem(tuple(long.ids), 4, 1.0, rate)], asked("long").suspects
    )
    for rate in (False, True):
        assert ranked(model, optimizer, lines, loss(rate)).scores["long"] < 0.0


def test_of_a_rate_the_log_odds_are_watched(tiny_model: Path) -> None:
    model, optimizer = attached(tiny_model)
    short = LINES["short"]
    for step in range(1, 31):
        run_step(model, optimizer, [short], step, 3e-3)
    item = WatchedItem(tuple(short.ids), short.mask.index(True), 1.0, False)
    loss = watched_loss(model, optimizer, item).detach().double().requires_grad_()
    chance = torch.exp(-loss)
    assert 0.3 < chance < 0.9999
    torch.log((1.0 - chance) / chance).backward()
    rate = watched_loss(model, optimizer, msgspec.structs.replace(item, rate=True))
    assert loss.grad is not None and float(rate.detach() / loss.detach()) == pytest.approx(float(loss.grad), rel=1e-4)
    assert float(loss.grad) > 1.2
