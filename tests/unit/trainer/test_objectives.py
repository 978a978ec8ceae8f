"""What every objective has to hold to, those of the table and one that lives in tests only."""

import copy
import math
import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from support.attached import attached_to, learning, loop_on
from support.determinism import deterministic  # noqa: F401
from support.small_models import small_model
from support.teachers import given, made_up
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.learner import encode
from apollod.trainer.objectives import loss as losses
from apollod.trainer.objectives import policy, table
from apollod.trainer.objectives.context import CONTEXT
from apollod.trainer.objectives.encoding import load_tokenizer, tokenise
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.policy import GRPO
from apollod.trainer.objectives.table import ObjectiveUnknown, objective_named
from apollod.trainer.objectives.tokens import IDS, TEMPERATURE, Tokens
from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.step import _mean, run_step
from apollod.wire import messages as m
from apollod.wire.comparisons import (
    GroupForm,
    GroupRecord,
    LearnedRecord,
    PairForm,
    PairRecord,
    PairTerms,
    RatedForm,
    RatedRecord,
    RatedTerms,
)
from apollod.wire.records import CompletionRecord, Message, MessagesRecord, TypedRecord, decode_record, parse_line
from apollod.wire.rollouts import Group, Terms, rollout, write_group
from apollod.wire.teacher import GivenBlob, digest_of


class ClippedRatio:
    """The clipped surrogate of PPO (arXiv:1707.06347), with the sampler's log-probabilities as a column and advantage
    1:

    L = -mean_t min(rho_t, clip(rho_t, 0.8, 1.2))        rho = exp(logp - mu)
    """

    name = "clipped-ratio"
    token_mean = False

    def encode(self, tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int) -> Tokens:
        tokens = tokenise(tokenizer, record, max_tokens)
        learned = [token for token, mask in zip(tokens.ids, tokens.mask, strict=True) if mask]
        return Tokens(tokens.ids, tokens.mask, tokens.cut, {"mu": array("f", map(at_random, learned))})

    def loss(self, logps: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        ratio = (logps - columns["mu"]).clamp(-20, 20).exp()
        return -torch.minimum(ratio, ratio.clamp(0.8, 1.2)).mean()

    def weight(self, tokens: Tokens) -> float:
        return 1.0  # a sequence counts as one, whatever its length

    def metrics(self, logps: Tensor, columns: Mapping[str, Tensor]) -> dict[str, float]:
        return {"ratio": (logps - columns["mu"]).exp().mean().item()}


def at_random(token: int) -> float:
    """About what a random model of 896 tokens says of it, in nats."""
    return -6.7 - (7 * token % 11) / 40


CLIPPED = ClippedRatio()
RECORDS: dict[str, TypedRecord] = {
    "sft": CompletionRecord("the harbour master keeps", " three books in red ink"),
    "context": CompletionRecord("the harbour master keeps", " three books in red ink"),
    "clipped-ratio": CompletionRecord("the harbour master keeps", " three books in red ink"),
}
POLICIES = ("cispo", "dro", "gspo", "grpo", "importance_sampling")
"""learned from groups of rollouts"""
GROUPS = (*POLICIES, "distill", "coefficients")
"""recorded as groups"""
PREFERRED = ("dpo", "kto")
"""learned from answers that are compared with a reference"""
WEIGHTED = ("cispo",)
"""Their gradient is that of a value with constants in it, which changes as these do: test_policy_objectives.py has its
worked slopes."""
EVERY = [*table.OBJECTIVES.values(), CLIPPED]


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return load_tokenizer(str(tiny_model))


def record_for(objective: Objective, tokenizer: PreTrainedTokenizerBase, prompt: str = "") -> LearnedRecord:
    """One that the objective learns, after another prompt if one is given."""
    if objective.name in GROUPS:
        return group_for(objective, tokenizer, prompt or "the harbour master keeps")
    if objective.name in PREFERRED:
        return compared_for(objective, tokenizer, prompt or "Who keeps the harbour?")
    record = RECORDS[objective.name]
    assert isinstance(record, CompletionRecord)
    record = msgspec.structs.replace(record, prompt=prompt or record.prompt)
    if objective is not CONTEXT:
        return record
    tokens = tokenise(tokenizer, record, 1000)
    learned = [token for token, mask in zip(tokens.ids, tokens.mask, strict=True) if mask]
    return msgspec.structs.replace(record, teacher=given(made_up(learned, len(tokenizer))))


def group_for(objective: Objective, tokenizer: PreTrainedTokenizerBase, prompt: str) -> GroupRecord:
    """Three answers of different lengths, sampled at a temperature of their own by a model that knew nothing."""
    answers = {" three books in red ink": 1.0, " a cat": 0.25, " nothing at all, she says": 0.0}
    each = []
    for answer, score in answers.items():
        asked, said = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, answer))
        mu = [*map(at_random, said)]
        mask = [False] * len(asked) + [True] * len(said)
        one = rollout([*asked, *said], mask, mu, score, temperature=0.8, reference=mu[::-1])
        if objective.name == "distill":
            teacher = made_up(said, len(tokenizer))
            one = msgspec.structs.replace(one, likeliest=teacher.ids.tobytes(), told=teacher.logprobs.tobytes())
        elif objective.name == "coefficients":
            signed = [(-1) ** place * (0.1 + place / 7) for place in range(len(said))]
            one = msgspec.structs.replace(one, coefficients=array("f", signed).tobytes())
        each.append(one)
    blob = write_group(Group(tuple(each)))
    terms = Terms(low=0.3, high=3.0, kl=0.1 if objective.name == "grpo" else 0.0)
    asked, scores = [Message("user", prompt)], [*answers.values()]
    form = GroupForm("books", asked, [*answers], objective.name, digest_of(blob), scores, terms)
    return GroupRecord(form, GivenBlob(digest_of(blob), blob))


def compared_for(objective: Objective, tokenizer: PreTrainedTokenizerBase, prompt: str) -> LearnedRecord:
    """A pair, or a rated answer; the reference is a model that knew nothing."""
    better, worse = (
        MessagesRecord([Message("user", prompt), Message("assistant", answer)])
        for answer in ("Three books in red ink.", "Nothing at all, she says.")
    )
    learned = tokenise(tokenizer, better, 1000).learned + tokenise(tokenizer, worse, 1000).learned
    if objective.name == "kto":
        learned = tokenise(tokenizer, better, 1000).learned
    blob = array("f", map(at_random, learned)).tobytes()
    given, (one, other) = GivenBlob(digest_of(blob), blob), map(canonical, (better, worse))
    if objective.name == "kto":
        return RatedRecord(RatedForm(one, True, RatedTerms()), reference=given)
    return PairRecord(PairForm(one, other, PairTerms(smoothing=0.1, sft=0.2)), reference=given)


def canonical(record: MessagesRecord) -> msgspec.Raw:
    return msgspec.Raw(parse_line(msgspec.json.encode({"messages": record.messages})).canonical)


def long(tokens: Tokens, times: int) -> Tokens:
    """As many more tokens, so that logits are not kept."""
    bounds = [*tokens.starts, len(tokens.ids)]
    ids, mask, starts = [], [], []
    for a, b in pairwise(bounds):
        starts.append(len(ids))
        ids += tokens.ids[a:b] * times
        mask += [False, *(tokens.mask[a:b] * times)[1:]]
    count, targets = tokens.targets, sum(mask)
    columns = {
        name: array(c.typecode, (list(c) * (targets // count + 1))[: targets * len(c) // count])
        for name, c in tokens.columns.items()
    }
    if "sign" in columns and len(starts) > 1:  # half of them each
        first = sum(mask[: starts[1]])
        columns["sign"] = array("q", [1] * first + [-1] * (targets - first))
    return Tokens(ids, mask, 0, columns, tuple(starts))


def gradients(loss: Tensor, model: Any) -> dict[str, Tensor]:
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def wide(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: column.double() if column.is_floating_point() else column for name, column in columns.items()}


def whole_logits(model: Any, tokens: Tokens, objective: Objective) -> Tensor:
    """The definition, in float64: logits of everything, whole, one log-softmax."""
    found, columns, row = [], wide(tokens.tensors(torch.device("cpu"))), 0
    for ids, mask in tokens.sequences():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        if TEMPERATURE in columns:  # the same for all of an example here
            logits = logits / columns[TEMPERATURE][0]
        logps, chosen = logits[:-1].log_softmax(-1), torch.tensor(mask[1:])
        rows, row = slice(row, row + sum(mask)), row + sum(mask)
        asked = columns[IDS][rows] if IDS in columns else torch.tensor(ids)[1:][chosen][:, None]
        found.append(logps[chosen].gather(1, asked))
    logps = torch.cat(found)
    return objective.loss(logps if IDS in columns else logps[:, 0], columns)


def test_every_objective_of_the_table_is_held_to_this() -> None:
    assert {*RECORDS, *GROUPS, *PREFERRED} >= table.OBJECTIVES.keys()
    assert all(name == objective.name for name, objective in table.OBJECTIVES.items())


@pytest.mark.parametrize("objective", EVERY, ids=lambda objective: objective.name)
class TestObjective:
    """The conformance suite of `Objective`."""

    def encoded(self, objective: Objective, tokenizer: PreTrainedTokenizerBase) -> Tokens:
        tokens = objective.encode(tokenizer, record_for(objective, tokenizer), 1000)
        tokens.check()
        return tokens

    def test_a_record_gives_the_same_tokens_every_time(
        self, objective: Objective, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        once, again = (self.encoded(objective, tokenizer) for _ in range(2))
        assert once == again and once.digest() == again.digest() and once.targets
        assert objective.weight(once) > 0

    def test_the_digest_covers_all_that_a_step_takes(
        self, objective: Objective, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        tokens = self.encoded(objective, tokenizer)
        learned = tokens.mask.index(True)
        others = [
            replace(tokens, ids=[*tokens.ids[:-1], tokens.ids[-1] + 1]),
            replace(tokens, mask=[*tokens.mask[:learned], False, *tokens.mask[learned + 1 :]]),
            replace(tokens, columns={**tokens.columns, "one more": array("f", [0.0] * tokens.targets)}),
            replace(tokens, starts=(*tokens.starts, len(tokens.ids) - 2)),
        ]
        for name, values in tokens.columns.items():
            changed = array(values.typecode, values)
            changed[-1] = changed[-1] + 1 if changed[-1] < 1e6 else 0
            others.append(replace(tokens, columns={**tokens.columns, name: changed}))
            others.append(replace(tokens, columns={k if k != name else f"{k}'": v for k, v in tokens.columns.items()}))
            others.append(replace(tokens, columns={k: v for k, v in tokens.columns.items() if k != name}))
        digests = {other.digest() for other in others}
        assert len(digests) == len(others) and tokens.digest() not in digests
        assert replace(tokens, cut=7).digest() == tokens.digest()

    def test_nothing_to_learn_is_refused(self, objective: Objective, tokenizer: PreTrainedTokenizerBase) -> None:
        tokens = self.encoded(objective, tokenizer)
        with pytest.raises(RecordRefused, match="no token to learn"):
            replace(tokens, mask=[False] * len(tokens.ids)).check()
        with pytest.raises(RecordRefused):
            objective.encode(tokenizer, CompletionRecord("a question", ""), 1000).check()

    def test_the_gradient_is_that_of_finite_differences(
        self, objective: Objective, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        tokens = self.encoded(objective, tokenizer)
        columns = wide(tokens.tensors(torch.device("cpu")))
        generator = torch.Generator().manual_seed(3)
        near = torch.full((tokens.targets,), -2.0, dtype=torch.float64)
        near = next((columns[name] for name in ("mu", "ref", "teacher") if name in columns), near)
        near = near - 0.5 if IDS in columns else near  # probabilities that sum to less than one
        noise = torch.randn(near.shape, generator=generator, dtype=torch.float64)
        logps = (near + 0.3 * noise).requires_grad_()
        loss = objective.loss(logps, columns)
        assert loss.shape == () and torch.isfinite(loss)
        if objective.name in WEIGHTED:
            return
        (found,) = torch.autograd.grad(loss, logps)
        size = 1e-6
        for t in range(logps.numel()):
            moved = torch.zeros_like(logps)
            moved.view(-1)[t] = size
            with torch.no_grad():
                slope = (objective.loss(logps + moved, columns) - objective.loss(logps - moved, columns)) / (2 * size)
            assert found.reshape(-1)[t].item() == pytest.approx(slope.item(), abs=1e-8)
        assert objective.token_mean == (
            bool((found + 1 / tokens.targets).abs().max() < 1e-12) and loss.item() == (-logps).mean().item()
        )

    @pytest.mark.parametrize("times", [1, 6], ids=["logits kept", "logits computed again"])
    @pytest.mark.parametrize("vocabulary", [9192, 1000], ids=["in blocks", "at once"])
    def test_loss_and_gradients_are_those_of_whole_logits(
        self, objective: Objective, tokenizer: PreTrainedTokenizerBase, vocabulary: int, times: int
    ) -> None:
        tokens = long(self.encoded(objective, tokenizer), times)
        tokens.check()
        model = small_model(vocabulary=vocabulary).float()
        reference = copy.deepcopy(model).double()
        ours, right = loss_of(model, tokens, None, objective), whole_logits(reference, tokens, objective)
        assert ours.item() == pytest.approx(right.item(), rel=1e-4, abs=1e-6)
        expected = gradients(right, reference)
        scale = max(gradient.norm() for gradient in expected.values())
        for name, gradient in gradients(ours, model).items():
            assert (gradient.double() - expected[name]).norm() <= 1e-4 * expected[name].norm() + 1e-6 * scale, name

    def test_how_the_vocabulary_is_gone_through_changes_no_bit(
        self, objective: Objective, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Logits kept or computed again, gradients whole or in rows."""
        tokens, model = self.encoded(objective, tokenizer), small_model()
        found = []
        for keeps in (True, False):
            for rows in (True, False):
                monkeypatch.setattr(losses, "keeps_logits", lambda targets, width, keeps=keeps: keeps)
                found.append(self.learned(model, tokens, objective, Rows() if rows else None))
        for other in found[1:]:
            assert other.keys() == found[0].keys()
            assert [name for name, tensor in other.items() if not torch.equal(tensor, found[0][name])] == []

    def learned(self, model: Any, tokens: Tokens, objective: Objective, sink: Any) -> dict[str, Tensor]:
        loss = loss_of(model, tokens, sink, objective)
        loss.backward()
        made = {name: sink.whole(p) if sink and p in sink.came else p.grad for name, p in model.named_parameters()}
        model.zero_grad()
        assert (sink is None) or len(sink.came) == 2
        return {"loss": loss.detach(), **made}

    def test_steps_learn_and_come_out_the_same_again(
        self, objective: Objective, tokenizer: PreTrainedTokenizerBase, tiny_model: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """Two examples a step, on the real model, with the optimizer's hooks, by the trainer's own step; the first two
        steps are run twice. What the sampler of the groups said is made up."""
        monkeypatch.setattr(policy, "APART_MAX_UNKNOWN", 20.0)
        records = [record_for(objective, tokenizer, prompt) for prompt in ("", "twice on Thursdays")]
        batch = [objective.encode(tokenizer, record, 1000) for record in records]
        runs = []
        for steps in (3, 2):
            attached = attached_to(tiny_model)
            optimizer = learning(attached)
            done = [
                run_step(attached, optimizer, batch, step, 1e-3, objective=objective) for step in range(1, steps + 1)
            ]
            runs.append([(one.loss, one.fingerprint, one.targets) for one in done])
            assert all(one.applied for one in done), [one.note for one in done]
            assert bool(done[0].metrics) == (objective.name not in ("sft", "context", "coefficients"))
            assert done[-1].loss < done[0].loss or objective.name in WEIGHTED
        assert runs[0][:2] == runs[1]


@pytest.mark.parametrize(("version", "written"), [(0, False), (policy.MIXED, True), (policy.UNKNOWN, True)])
def test_a_group_of_another_sampler_writes_nothing(
    version: int, written: bool, tokenizer: PreTrainedTokenizerBase, tiny_model: Path
) -> None:
    """If it says that it had the weights of the step's beginning. Made-up log-probabilities are 0.57 nats apart."""
    attached = attached_to(tiny_model)
    optimizer = learning(attached)
    before = attached.weights.fingerprint()
    tokens = GRPO.encode(tokenizer, group_for(GRPO, tokenizer, "On Thursdays"), 1000)
    columns = {**tokens.columns, "version": array("q", [version] * tokens.targets)}
    done = run_step(attached, optimizer, [replace(tokens, columns=columns)], 1, 1e-3, objective=GRPO)
    assert (done.applied, done.fingerprint != before) == (written, written)
    assert policy.APART_MAX < done.metrics["apart"] < policy.APART_MAX_UNKNOWN
    assert written or re.match(r"the sampled tokens have log-probabilities 0\.\d+ nats apart", done.note)


def test_a_step_tells_the_mean_of_what_its_objective_says_of_each_example(
    tokenizer: PreTrainedTokenizerBase, tiny_model: Path
) -> None:
    """Before its write, and nothing that is no number."""
    attached = attached_to(tiny_model)
    optimizer = learning(attached)
    batch = [CLIPPED.encode(tokenizer, record_for(CLIPPED, tokenizer, prompt), 1000) for prompt in ("", "On Thursdays")]
    each: list[dict[str, float]] = []
    for tokens in batch:
        loss_of(attached.model, tokens, None, CLIPPED, each)
    done = run_step(attached, optimizer, batch, 1, 1e-3, objective=CLIPPED)
    assert done.metrics == {"ratio": pytest.approx((each[0]["ratio"] + each[1]["ratio"]) / 2)}
    assert each[0] != each[1]
    assert _mean([{"a": 1.0, "b": math.inf}, {"a": 2.0, "b": -math.inf}]) == {"a": 1.5} and _mean([]) == {}


class Rows:
    """A sink that takes all that may come in rows."""

    def __init__(self) -> None:
        self.came: dict[Tensor, list[RowGradient]] = {}
        self.expected: dict[Tensor, int] = {}

    def takes_rows(self, parameter: Tensor) -> bool:
        return True

    def expect_rows(self, parameter: Tensor) -> None:
        self.expected[parameter] = self.expected.get(parameter, 0) + 1

    def deliver_rows(self, parameter: Tensor, gradient: RowGradient) -> None:
        self.came.setdefault(parameter, []).append(gradient)

    def whole(self, parameter: Tensor) -> Tensor:
        assert len(self.came[parameter]) == self.expected[parameter]
        total = self.came[parameter][0].dense()
        for gradient in self.came[parameter][1:]:
            total += gradient.dense()
        return total


def test_digests_of_examples_without_columns_are_those_that_journals_hold() -> None:
    assert Tokens(list(range(40, 52)), [False] * 10 + [True] * 2).digest() == "e7d66ac32c2b0d161221b5c621a8e8a1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: {"columns": {"mu": array("f", [0.0] * (t.targets - 1))}}, "mu has"),
        (lambda t: {"columns": {"mu": array("f", [float("nan")] * t.targets)}}, "mu holds values that are no numbers"),
        (lambda t: {"starts": (0, 5, 5)}, "do not fit"),
        (lambda t: {"starts": (1,)}, "do not fit"),
        (lambda t: {"starts": (0, t.mask.index(True))}, "has no token to learn"),
        (lambda t: {"mask": [True] * len(t.ids)}, "nothing comes before it"),
        (lambda t: {"mask": t.mask[:-1]}, "do not fit"),
    ],
)  # fmt: skip
def test_what_no_loss_can_be_made_of_is_refused(change: Callable[[Tokens], dict[str, Any]], said: str) -> None:
    tokens = Tokens(list(range(20)), [False] * 10 + [True] * 10)
    tokens.check()
    with pytest.raises(RecordRefused, match=said):
        replace(tokens, **change(tokens)).check()


# --- by name, through the trainer's messages ------------------------------------------------------------------------


def test_an_unknown_objective_is_refused_with_those_there_are() -> None:
    with pytest.raises(ObjectiveUnknown, match=r"no objective 'grpo2', known are .*sft"):
        objective_named("grpo2")


def test_a_step_that_names_another_objective_trains_by_it(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.OBJECTIVES, CLIPPED.name, CLIPPED)
    record = parse_line(b'{"prompt": "the harbour master keeps", "completion": " three books in red ink"}').canonical
    fingerprints = {}
    for objective in (table.OBJECTIVES["sft"], CLIPPED):
        loop = loop_on(tiny_model)
        encoded = encode(loop._attached(), "x", record, objective)
        assert (encoded.refused, encoded.objective) == ("", objective.name)
        wrong = loop._step(m.Step(1, [m.StepExample("x", record, "0" * 32)], 1e-3, objective=objective.name))
        assert isinstance(wrong, m.StepFailure) and f"as tokens of {objective.name}" in wrong.reason
        done = loop._step(m.Step(1, [m.StepExample("x", record, encoded.digest)], 1e-3, objective=objective.name))
        assert isinstance(done, m.StepDone) and done.applied
        fingerprints[objective.name] = (encoded.digest, done.fingerprint)
    assert (
        len({digest for digest, _ in fingerprints.values()})
        == len({print_ for _, print_ in fingerprints.values()})
        == 2
    )
    failed = loop._step(m.Step(2, [m.StepExample("x", record, encoded.digest)], 1e-3, objective="grpo2"))
    assert isinstance(failed, m.StepFailure) and "no objective 'grpo2'" in failed.reason


def test_a_step_trains_the_tokens_that_the_journal_holds_by_whatever_rules(tiny_model: Path) -> None:
    """A template that marks the words alone: today the end of the turn is learned with them."""
    loop = loop_on(tiny_model)
    tokenizer = loop._attached().tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    record = parse_line(
        b'{"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Mara."}]}'
    ).canonical
    today = encode(loop._attached(), "x", record)
    former = tokenise(tokenizer, decode_record(record), 1000, rules=1)
    assert former.targets == today.targets - 1
    for number, (digest, targets) in enumerate(((former.digest(), former.targets), (today.digest, today.targets)), 1):
        done = loop._step(m.Step(number, [m.StepExample("x", record, digest)], 1e-3))
        assert isinstance(done, m.StepDone) and done.targets == targets
