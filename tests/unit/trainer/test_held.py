"""What a step holds: the divergence of anchors against float64, and one backward pass that never has all gradients."""

from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from support.attached import attached_to, learning
from support.determinism import deterministic  # noqa: F401
from support.small_models import hybrid, small_model
from torch import Tensor
from transformers import PreTrainedModel

from apollod.core.facts.training import StepTerms
from apollod.products import products_in
from apollod.trainer.objectives.context import CONTEXT, NOISE, TEACHER
from apollod.trainer.objectives.loss import loss_of, losses_of
from apollod.trainer.objectives.tokens import IDS, Tokens
from apollod.trainer.step import Graphs, run_step
from apollod.wire.messages import StepDone

EXAMPLE = Tokens(list(range(60, 100)), [False] * 4 + [True] * 36)
K = 4


def anchor(length: int, learned: int, seed: int, vocabulary: int = 500) -> Tokens:
    """Of random tokens, with a teacher that has nothing in common with any model."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocabulary, (length,), generator=generator).tolist()
    asked = torch.stack([torch.randperm(vocabulary, generator=generator)[:K] for _ in range(learned)])
    shares = torch.rand(learned, K, generator=generator) + 0.1
    told = (0.9 * shares / shares.sum(1, keepdim=True)).log()
    columns: dict[str, array[float] | array[int]] = {
        IDS: array("q", asked.flatten().tolist()), TEACHER: array("f", told.flatten().tolist()),
    }  # fmt: skip
    return Tokens(ids, [False] * (length - learned) + [True] * learned, 0, columns)


ANCHORS = [anchor(20, 6, 1), anchor(33, 11, 2), anchor(9, 8, 3)]
"""of several lengths: the shorter ones are filled up"""


def by_hand(model: PreTrainedModel, tokens: Tokens) -> Tensor:
    """KL_t = sum_K p (log p - log q) + P log(P / Q), of one anchor alone, in the model's own precision."""
    ids = torch.tensor([tokens.ids])
    q = model(input_ids=ids).logits[0].log_softmax(-1)
    places = [place - 1 for place, learned in enumerate(tokens.mask) if learned]
    each = []
    for row, place in enumerate(places):
        asked = list(tokens.columns[IDS][row * K : row * K + K])
        p = torch.tensor(tokens.columns[TEACHER][row * K : row * K + K], dtype=q.dtype).exp()
        inside = q[place, asked]
        rest, others = 1 - p.sum(), 1 - inside.exp().sum()
        each.append((p * (p.log() - inside)).sum() + rest * (rest / others).log())
    assert all(one.item() > NOISE for one in each)
    return torch.stack(each).mean()


@pytest.mark.parametrize("vocabulary", [500, 9192])  # logits at once, and a head in blocks with gradients in rows
def test_divergence_and_gradient_are_those_of_float64_worked_out_one_by_one(vocabulary: int) -> None:
    model = small_model(tie=vocabulary > 500, vocabulary=vocabulary).float()
    exact = deepcopy(model).double()
    found = divergences(model, ANCHORS)
    right = torch.stack([by_hand(exact, one) for one in ANCHORS])
    assert found.tolist() == pytest.approx(right.tolist(), rel=1e-5)
    (loss_of(model, EXAMPLE) + 0.7 * found.mean()).backward()
    (loss_of(exact, EXAMPLE) + 0.7 * right.mean()).backward()
    for (name, mine), (_, its) in zip(model.named_parameters(), exact.named_parameters(), strict=True):
        assert mine.grad is not None and its.grad is not None
        assert (mine.grad.double() - its.grad).norm() < 1e-5 * its.grad.norm(), name


def divergences(model: PreTrainedModel, anchors: Sequence[Tokens]) -> Tensor:
    """What `run_step` adds to the loss, once for each anchor."""
    return losses_of(model, anchors, None, CONTEXT)


def order(model: PreTrainedModel, backward: Callable[[], None]) -> list[str]:
    """Layers in the order in which a backward pass has all gradients of them, and in which it goes through them; and
    `head`, when it is through the head of one of its graphs."""
    seen: list[str] = []

    def note(what: str) -> None:
        if not seen or seen[-1] != what:
            seen.append(what)

    for name, parameter in model.named_parameters():
        number = name.split("layers.")[-1].split(".")[0]
        if "layers." in name:
            parameter.register_post_accumulate_grad_hook(lambda _, number=number: note(f"has {number}"))

    def watch(number: int, made: Tensor) -> None:
        if made.requires_grad:  # the gradient of what a layer makes comes before those of its weights
            made.register_hook(lambda _: note(f"in {number}"))

    def through(_norm: object, _given: object, made: Tensor) -> None:
        if made.requires_grad:
            made.register_hook(lambda _: note("head"))

    model.model.norm.register_forward_hook(through)
    for number, layer in enumerate(model.model.layers):
        layer.register_forward_hook(
            lambda _layer, _given, made, number=number: watch(number, made if isinstance(made, Tensor) else made[0])
        )
    with ThreadPoolExecutor(1) as thread:  # whose nodes are numbered from 0, as in a trainer that has just begun
        thread.submit(backward).result()
    return seen


@pytest.mark.parametrize(
    "make",
    [small_model, lambda: hybrid("dada", 500), lambda: hybrid("dadd", 9192)],
    ids=["attention", "hybrid", "large head"],  # of which the first loss asks first whether logits end in it; its last
    # layer is linear, and makes more nodes of the longer one
)
def test_gradients_of_a_layer_are_complete_before_the_layer_below_begins(make: Callable[[], PreTrainedModel]) -> None:
    """So that they are dropped there, and never exist all at once. Also of an example that takes many more operations a
    layer: the recurrence of the hybrid's goes in pieces of 64 tokens."""
    long = Tokens([7 * n % 500 for n in range(350)], [False] * 300 + [True] * 50)

    def in_one() -> None:
        graphs = Graphs(model)
        loss = graphs.of(lambda: loss_of(model, long))
        others = graphs.of(lambda: divergences(model, ANCHORS))
        graphs.joined(lambda: loss + others.mean()).backward()

    def one_after_the_other() -> None:
        (loss_of(model, long) + divergences(model, ANCHORS).mean()).backward()

    model = make()
    seen, layers = order(model, in_one), range(len(model.model.layers))
    for layer in layers[:-1]:
        begun = seen.index(f"in {layer}")
        assert f"has {layer + 1}" in seen[:begun] and f"has {layer + 1}" not in seen[begun:], seen
    assert "head" not in seen[seen.index(f"in {layers[-1]}") :], "logits of the one beside the layers of the other"
    model = make()
    seen = order(model, one_after_the_other)
    assert seen.index("in 0") < seen.index(f"has {layers[-1]}"), "else Graphs is needed no more"


def test_threads_multiply_as_their_caller_does() -> None:
    model = small_model()
    with products_in("float32"):
        right, found = loss_of(model, EXAMPLE), Graphs(model).of(lambda: loss_of(model, EXAMPLE))
    assert torch.equal(right, found) and not torch.equal(right, loss_of(model, EXAMPLE))


# --- steps --------------------------------------------------------------------------------------------------------


def steps(tiny_model: Path, count: int, held: list[Tokens], hold: float = 1.0, again: bool = False) -> list[StepDone]:
    model = attached_to(tiny_model, again)
    optimizer = learning(model)
    batches = [[EXAMPLE], [EXAMPLE, Tokens(EXAMPLE.ids[::-1], EXAMPLE.mask)]]
    return [
        run_step(model, optimizer, batches[step % 2], step, 1e-3, StepTerms(hold=hold), anchors=held)
        for step in range(1, count + 1)
    ]


def test_a_step_holds_and_another_process_would_get_the_same_bits(tiny_model: Path) -> None:
    first = steps(tiny_model, 3, ANCHORS)
    again = steps(tiny_model, 3, ANCHORS, again=True)  # layers computed again change no bit here either
    assert [one.fingerprint for one in first] == [one.fingerprint for one in again]
    assert [one.held for one in first] == [one.held for one in again] and len(first[0].held) == 3
    free = steps(tiny_model, 3, [])
    assert free[0].loss == first[0].loss and free[0].held == () and free[0].fingerprint != first[0].fingerprint
    weak = steps(tiny_model, 3, ANCHORS, hold=0.01)
    assert sum(first[-1].held) < sum(weak[-1].held), "what counts more comes nearer"


def test_what_is_no_number_writes_nothing(tiny_model: Path) -> None:
    model = attached_to(tiny_model)
    optimizer = learning(model)
    before = model.weights.fingerprint()
    broken = anchor(20, 6, 1)
    broken.columns[TEACHER][0] = float("nan")  # no record holds one: `Tokens.check`
    done = run_step(model, optimizer, [EXAMPLE], 1, 1e-3, StepTerms(hold=1.0), anchors=[ANCHORS[0], broken])
    assert not done.applied and done.fingerprint == before and "held is not finite" in done.note and done.held == ()
    known = run_step(model, optimizer, [EXAMPLE], 2, 1e-3, StepTerms(hold=1.0), anchors=ANCHORS, loss_min=1e9)
    assert known.known and known.held == () and known.fingerprint == before, "what is known asks no anchor"
    done = run_step(model, optimizer, [EXAMPLE], 3, 1e-3, StepTerms(hold=1.0), anchors=ANCHORS)
    assert done.applied and all(parameter.grad is None for _, parameter in model.trainable)
