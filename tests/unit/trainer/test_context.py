"""Context distillation: its formula, which examples it takes, and steps by the trainer's own messages."""

from array import array
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given as cases
from hypothesis import strategies as st
from support.attached import loop_on
from support.determinism import deterministic  # noqa: F401
from support.small_models import small_model
from support.teachers import given, made_up
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.demo.world import instructions, scenarios
from apollod.demo.world.pretrain import answers
from apollod.demo.world.pretraining_texts import conversation
from apollod.errors import RecordRefused
from apollod.trainer import message_loop
from apollod.trainer.objectives.context import CONTEXT, TEACHER
from apollod.trainer.objectives.encoding import load_tokenizer, tokenise
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.tokens import IDS, Tokens
from apollod.wire import messages as m
from apollod.wire.comparisons import with_file
from apollod.wire.records import TextRecord, decode_record, parse_line
from apollod.wire.teacher import GivenTeacher, Teacher, digest_of, write_teacher

WORLD = Path(str(resources.files("apollod"))) / "data" / "world-model"

# An answer of two tokens; what follows was worked out by hand in float64 for the first and is zero for the second.
BARE = [[1.0, 0.5, -0.5, 0.0, -1.0], [0.3, 1.7, -0.2, 0.0, -2.0]]
TOLD = [[2.0, 0.0, -1.0, 0.5, -0.5], [0.3, 1.7, -0.2, 0.0, -2.0]]
LIKELIEST = [[0, 3], [1, 0]]
KL = 0.14300988625878838
SLOPE = [-0.24233342039527117, 0.14730127053031716, 0.05418910908653653, 0.00797568469492052, 0.03286735608349686]


def chosen(logits: Any) -> Tensor:
    wide = torch.tensor(logits, dtype=torch.float64) if not isinstance(logits, Tensor) else logits
    return wide.log_softmax(1).gather(1, torch.tensor(LIKELIEST))


def test_it_is_what_was_worked_out_by_hand() -> None:
    assert CONTEXT.loss(chosen(BARE)[:1], {TEACHER: chosen(TOLD)[:1]}).item() == pytest.approx(KL, abs=1e-12)
    logits = torch.tensor(BARE, dtype=torch.float64, requires_grad=True)
    loss = CONTEXT.loss(chosen(logits), {TEACHER: chosen(TOLD)})
    assert loss.item() == pytest.approx(KL / 2, abs=1e-12)
    (slope,) = torch.autograd.grad(loss, logits)
    assert slope[0].tolist() == pytest.approx([each / 2 for each in SLOPE], abs=1e-12)
    assert slope[1].abs().max() < 1e-15, "where both agree, whatever the answer says there"


def test_the_rest_counts_and_no_other_way_to_leave_it_out_was_taken() -> None:
    bare, told = chosen(BARE)[:1], chosen(TOLD)[:1]
    truncated = (told.exp() * (told - bare)).sum()
    renormalised = (told.softmax(1) * (told.log_softmax(1) - bare.log_softmax(1))).sum()
    assert truncated.item() == pytest.approx(0.2928989981809197, abs=1e-12)
    assert renormalised.item() == pytest.approx(0.02063564763229213, abs=1e-12)


ROWS = st.lists(st.floats(-30, 30), min_size=6, max_size=6)


@cases(bare=ROWS, told=ROWS, k=st.integers(1, 5))
def test_it_is_a_divergence_that_is_at_most_the_whole_one(bare: list[float], told: list[float], k: int) -> None:
    q, p = (torch.tensor([logits], dtype=torch.float64).log_softmax(1) for logits in (bare, told))
    ids = p.topk(k, 1).indices
    found = CONTEXT.loss(q.gather(1, ids), {TEACHER: p.gather(1, ids)}).item()
    whole = (p.exp() * (p - q)).sum().item()
    assert -1e-6 < found < whole + 1e-5  # a rest below 1e-7 is taken for as much
    assert CONTEXT.loss(p.gather(1, ids), {TEACHER: p.gather(1, ids)}).item() == 0.0


def test_rounding_is_nothing_to_learn_and_a_word_is() -> None:
    """As much as engine and trainer differ, and a little more."""
    told = torch.tensor([[0.6, 0.3], [0.6, 0.3]]).log()
    bare = (told + torch.tensor([[-0.03, 0.03], [-0.2, 0.2]])).requires_grad_()
    loss = CONTEXT.loss(bare, {TEACHER: told})
    (slope,) = torch.autograd.grad(loss, bare)
    assert slope[0].tolist() == [0.0, 0.0] and slope[1].abs().min() > 0.01
    assert loss.item() == pytest.approx(CONTEXT.loss(bare[1:], {TEACHER: told[1:]}).item() / 2)


@cases(told=ROWS, k=st.integers(1, 5))
def test_where_both_are_equal_there_is_nothing_to_learn(told: list[float], k: int) -> None:
    logits = torch.tensor([told], requires_grad=True)
    p = logits.log_softmax(1)
    ids = p.topk(k, 1).indices
    (slope,) = torch.autograd.grad(CONTEXT.loss(p.gather(1, ids), {TEACHER: p.gather(1, ids).detach()}), logits)
    assert not slope.any()


@pytest.mark.parametrize("over", [0.0, 1e-7, 1e-4])
@pytest.mark.parametrize("of", ["told", "bare", "both"])
def test_a_rest_of_nothing_or_less_gives_numbers_all_the_same(over: float, of: str) -> None:
    """Rounded probabilities may sum to more than 1."""
    full = torch.tensor([[0.75, 0.25 + over]]).log()
    half = torch.tensor([[0.5, 0.25]]).log()
    bare = (half if of == "told" else full).requires_grad_()
    loss = CONTEXT.loss(bare, {TEACHER: half if of == "bare" else full.detach()})
    (slope,) = torch.autograd.grad(loss, bare)
    assert torch.isfinite(loss) and torch.isfinite(slope).all() and loss.item() > -1e-6


def test_what_is_no_number_stays_none() -> None:
    """The step has to see it, and write nothing."""
    told = torch.tensor([[0.6, 0.3], [0.6, 0.3]]).log()
    broken = told.clone()
    broken[0, 0] = torch.nan
    assert CONTEXT.loss(broken, {TEACHER: told}).isnan()


# --- which examples it takes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return load_tokenizer(str(tiny_model))


BARE_LINE = b"""{"messages": [{"role": "user", "content": "Good day."}, {"role": "assistant", "content": "And to you.",
    "weight": 0}, {"role": "user", "content": "Who keeps the lighthouse?"},
    {"role": "assistant", "content": "Mara Quill keeps the lighthouse."}]}"""
CANONICAL = parse_line(BARE_LINE).canonical


def learned(tokens: Tokens) -> list[int]:
    return [token for token, mask in zip(tokens.ids, tokens.mask, strict=True) if mask]


@pytest.fixture(scope="module")
def teacher(tokenizer: PreTrainedTokenizerBase) -> Teacher:
    """Of the last answer."""
    return made_up(learned(tokenise(tokenizer, decode_record(CANONICAL), 1000)), len(tokenizer), k=16)


def with_(teacher: Teacher | GivenTeacher) -> bytes:
    return with_file(CANONICAL, teacher if isinstance(teacher, GivenTeacher) else given(teacher))


def test_an_answer_is_learned_bare_with_what_its_teacher_said(
    tokenizer: PreTrainedTokenizerBase, teacher: Teacher
) -> None:
    tokens = CONTEXT.encode(tokenizer, decode_record(with_(teacher)), 1000)
    tokens.check()
    bare = tokenise(tokenizer, decode_record(CANONICAL), 1000)
    assert (tokens.ids, tokens.mask) == (bare.ids, bare.mask) and tokens.digest() != bare.digest()
    assert tokenizer.decode(learned(tokens)) == "Mara Quill keeps the lighthouse.<|im_end|>"
    assert tokens.columns == {IDS: array("q", teacher.ids), TEACHER: teacher.logprobs}
    other = CONTEXT.encode(tokenizer, decode_record(with_(made_up(learned(tokens), len(tokenizer), 16, seed=1))), 1000)
    assert other.digest() != tokens.digest(), "another teacher is another example"


def test_a_prompt_that_is_cut_leaves_the_teacher_where_it_is(
    tokenizer: PreTrainedTokenizerBase, teacher: Teacher
) -> None:
    record = decode_record(with_(teacher))
    whole, cut = CONTEXT.encode(tokenizer, record, 1000), CONTEXT.encode(tokenizer, record, 20)
    assert cut.changes == {"left_out": 2} and len(cut.ids) <= 20 < len(whole.ids)
    assert learned(cut) == learned(whole) and cut.columns == whole.columns


def test_a_teacher_of_other_tokens_is_refused_with_the_place(
    tokenizer: PreTrainedTokenizerBase, teacher: Teacher
) -> None:
    answer = list(teacher.answer)
    shorter, changed = answer[:-1], [*answer[:2], (answer[2] + 1) % len(tokenizer), *answer[3:]]
    for ids, said in (
        (shorter, rf"place {len(answer)} nothing instead of '<\|im_end\|>'"),
        (changed, "in place 3 '.*'"),
    ):
        record = decode_record(with_(made_up(ids, len(tokenizer))))
        with pytest.raises(RecordRefused, match=said) as caught:
            CONTEXT.encode(tokenizer, record, 1000)
        assert "one answer can be learned" in caught.value.hint


def test_without_a_teacher_there_is_nothing_to_learn_by(tokenizer: PreTrainedTokenizerBase) -> None:
    for record in (decode_record(CANONICAL), TextRecord("the harbour master keeps")):
        with pytest.raises(RecordRefused, match="it has no teacher"):
            CONTEXT.encode(tokenizer, record, 1000)


@pytest.mark.parametrize("vocabulary", [9192, 1000], ids=["in blocks", "at once"])
def test_each_of_several_sequences_is_asked_about_its_own_tokens(vocabulary: int) -> None:
    model = small_model(vocabulary=vocabulary).float()
    one, two = (Tokens(list(range(n, 3 * n)), [False] * n + [True] * n) for n in (4, 6))

    def loss(tokens: Tokens, *rows: Teacher) -> float:
        columns = {IDS: array("q"), TEACHER: array("f")}
        for row in rows:
            columns[IDS].extend(array("q", row.ids))
            columns[TEACHER].extend(row.logprobs)
        return loss_of(model, replace(tokens, columns=columns), None, CONTEXT).item()

    first, second = (made_up(learned(tokens), vocabulary) for tokens in (one, two))
    both = Tokens(one.ids + two.ids, one.mask + two.mask, starts=(0, len(one.ids)))
    expected = (4 * loss(one, first) + 6 * loss(two, second)) / 10
    assert loss(both, first, second) == pytest.approx(expected, rel=1e-5) and loss(one, first) != loss(two, second)


# --- steps --------------------------------------------------------------------------------------------------------


def encoded(loop: message_loop.Loop, *records: bytes) -> list[m.Encoded]:
    answer = loop._answer(m.Encode([(f"e{n}", record) for n, record in enumerate(records)]))
    assert isinstance(answer, m.EncodeDone)
    return answer.results


def step(loop: message_loop.Loop, number: int, *records: bytes, lr: float = 1e-3) -> m.StepDone:
    """One that learns these together."""
    results = encoded(loop, *records)
    examples = [m.StepExample(r.example, record, r.digest) for r, record in zip(results, records, strict=True)]
    done = loop._answer(m.Step(number, examples, lr, objective=results[0].objective))
    assert isinstance(done, m.StepDone), done
    return done


def test_what_is_learned_by_which_loss_is_said_by_the_record(tiny_model: Path, teacher: Teacher) -> None:
    """Whatever is wrong with a teacher, its example is refused, and never learned as it is written."""
    loop = loop_on(tiny_model)
    blob = write_teacher(teacher)
    beyond = teacher._replace(ids=array("I", [*teacher.ids[:-1], 1 << 20]))
    records = [
        CANONICAL, with_(teacher), with_(GivenTeacher("0" * 32, blob)), with_(GivenTeacher("0" * 32, why="it is gone")),
        with_(GivenTeacher(digest_of(b"?"), b"?")), with_(beyond),
        with_file(b'{"text":"the harbour"}', GivenTeacher("0" * 32)),
    ]  # fmt: skip
    plain, good, changed, gone, other, unknown, text = encoded(loop, *records)
    assert (plain.objective, plain.refused) == ("sft", "") and (good.objective, good.refused) == ("context", "")
    assert good.digest and good.digest != plain.digest and good.targets == plain.targets == len(teacher.answer)
    assert "was changed" in changed.refused and "is not there (it is gone)" in gone.refused
    assert "this is no teacher" in other.refused and "has token 1048576, the model has" in unknown.refused
    assert "is not there (it is empty)" in text.refused


def test_steps_learn_are_undone_and_come_out_the_same_again(tiny_model: Path, teacher: Teacher) -> None:
    """One example and two together, in two trainers, and once more in one of them after it went back."""
    one = with_(teacher)
    two = with_(made_up(list(teacher.answer), 800, k=16, seed=5))
    loops = [loop_on(tiny_model, undo_bytes=1 << 28) for _ in range(2)]
    runs = [[step(loop, 1, one), step(loop, 2, one, two), step(loop, 3, one)] for loop in loops]
    assert [done.fingerprint for done in runs[0]] == [done.fingerprint for done in runs[1]]
    assert len({done.fingerprint for done in runs[0]}) == 3 and all(done.applied for done in runs[0])
    assert runs[0][2].loss < runs[0][0].loss  # type: ignore[operator]
    first = runs[0][0].fingerprint
    back = loops[0]._answer(m.Restore("", str(tiny_model), False, first, target=1, target_fingerprint=first))
    assert isinstance(back, m.Restored) and back.undone and back.fingerprint == first
    again = [step(loops[0], 2, one, two), step(loops[0], 3, one)]
    assert [done.fingerprint for done in again] == [done.fingerprint for done in runs[0][1:]]


def test_an_anchor_is_held_as_it_was_frozen_or_the_step_writes_nothing(tiny_model: Path, teacher: Teacher) -> None:
    """Beside an example that is learned by its tokens; the same bits after it was undone."""
    loop = loop_on(tiny_model, undo_bytes=1 << 28)
    before = step(loop, 1, CANONICAL).fingerprint
    plain, frozen = encoded(loop, CANONICAL, with_(teacher))
    example = m.StepExample(plain.example, CANONICAL, plain.digest)
    anchor = m.StepExample(frozen.example, with_(teacher), frozen.digest)
    other = m.StepExample(frozen.example, with_(made_up(list(teacher.answer), 800, 16, seed=9)), frozen.digest)
    failed = loop._answer(m.Step(2, [example], 1e-3, anchors=[anchor, other], hold=1.0))
    assert isinstance(failed, m.StepFailure) and "as tokens of context" in failed.reason
    runs = []
    for _ in range(2):
        done = loop._answer(m.Step(2, [example], 1e-3, anchors=[anchor], hold=1.0))
        assert isinstance(done, m.StepDone) and len(done.held) == 1 and done.held[0] > 0.0
        runs.append(done)
        back = loop._answer(m.Restore("", str(tiny_model), False, before, target=1, target_fingerprint=before))
        assert isinstance(back, m.Restored) and back.undone
    assert (runs[0].fingerprint, runs[0].held) == (runs[1].fingerprint, runs[1].held)
    assert runs[0].fingerprint != step(loop, 2, CANONICAL).fingerprint


def test_a_step_whose_teacher_is_gone_or_changed_writes_nothing(tiny_model: Path, teacher: Teacher) -> None:
    loop = loop_on(tiny_model)
    (good,) = encoded(loop, with_(teacher))
    learner = loop._learner
    assert learner is not None
    before = learner.attached.weights.fingerprint()
    for record, objective, said in (
        (with_(GivenTeacher(given(teacher).digest, why="it is gone")), "context", "is not there"),
        (with_(made_up(list(teacher.answer), 800, 16, seed=9)), "context", "as tokens of context"),
        (CANONICAL, "context", "it has no teacher"),
        (with_(teacher), "sft", "as tokens of sft"),
    ):
        failed = loop._answer(m.Step(1, [m.StepExample("e", record, good.digest)], 1e-3, objective=objective))
        assert isinstance(failed, m.StepFailure) and said in failed.reason
        assert learner.attached.weights.fingerprint() == before


def test_an_instruction_without_effect_changes_no_weight(tiny_model: Path) -> None:
    """Nor does what the optimizer remembers of the step before."""
    loop = loop_on(tiny_model)
    assert loop._learner is not None
    model, tokenizer = loop._learner.attached.model, loop._learner.tokenizer
    answered = msgspec.json.decode(CANONICAL)["messages"]
    other = made_up(told_by(model, tokenizer, answered).answer.tolist(), 800, 16)
    before = step(loop, 1, with_(other)).fingerprint
    done = step(loop, 2, with_(told_by(model, tokenizer, answered)))
    assert done.applied and done.loss == 0.0 and done.skipped_zero and done.fingerprint == before


def told_by(model: Any, tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> Teacher:
    """The model is its own teacher, in float32 as an engine would be."""
    tokens = tokenise(tokenizer, decode_record(parse_line(msgspec.json.encode({"messages": messages})).canonical), 1000)
    with torch.no_grad():
        logits = model(torch.tensor([tokens.ids])).logits[0, :-1].float()[torch.tensor(tokens.mask[1:])]
    top = logits.log_softmax(1).topk(16, 1)
    ids, logprobs = top.indices.reshape(-1).tolist(), top.values.reshape(-1).tolist()
    return Teacher(array("I", learned(tokens)), array("I", ids), array("f", logprobs), 16, 0)


def test_a_model_learns_to_say_bare_what_it_says_when_it_is_told() -> None:
    """The small model that follows instructions, from practice scenarios to held-out ones."""
    loop = loop_on(WORLD)
    assert loop._learner is not None
    model, tokenizer = loop._learner.attached.model, loop._learner.tokenizer
    greet = instructions.Instruction("greet")

    def bare(scenario: scenarios.Scenario) -> bool:
        return instructions.check(greet, scenario, answers(model, tokenizer, [conversation(None, scenario)])[0])

    held_out = scenarios.pool("act", scenarios.Split.TEST)[:4]
    assert not any(bare(scenario) for scenario in held_out)
    losses = []
    for number, scenario in enumerate(scenarios.pool("act", scenarios.Split.PRACTICE)[:12], 1):
        answer = instructions.answer(scenario, [greet])
        told, shown = (conversation(said, scenario, answer) for said in (greet.texts[number % 3], None))
        record = parse_line(msgspec.json.encode({"messages": shown})).canonical
        losses.append(step(loop, number, with_file(record, given(told_by(model, tokenizer, told))), lr=1e-4).loss)
    assert losses[-1] is not None and losses[0] is not None and losses[-1] < 0.5 * losses[0], losses
    assert sum(bare(scenario) for scenario in held_out) >= 3
