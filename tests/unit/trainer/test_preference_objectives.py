"""Losses of preferences, against worked values in float64."""

from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from apollod.core.events import Sampled
from apollod.errors import RecordRefused
from apollod.trainer.objectives.compared_answers import DPO, KTO, with_zero
from apollod.trainer.objectives.encoding import load_tokenizer, tokenise
from apollod.trainer.objectives.table import objective_of
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import (
    PairForm,
    PairRecord,
    PairTerms,
    RatedForm,
    RatedRecord,
    RatedTerms,
    as_text,
    compared_json,
    decode_learned,
)
from apollod.wire.records import Record, decode_record, record_of, with_sampled
from apollod.wire.teacher import GivenBlob, digest_of

BETTER, WORSE = [-0.5, -1.2, -0.3], [-2.0, -0.7]
REF = [-0.6, -1.1, -0.9, -1.5, -1.4]
EXACT = {"rel": 1e-12, "abs": 1e-12}


def pair(**terms: Any) -> dict[str, Tensor]:
    given = {"beta": 0.1, "smoothing": 0.0, "robust": 0.0, "sft": 0.0} | terms
    columns = {name: torch.full((5,), value, dtype=torch.float64) for name, value in given.items()}
    signs, ref = torch.tensor([1, 1, 1, -1, -1]), torch.tensor(REF, dtype=torch.float64)
    return {**columns, "sign": signs, "ref": ref}


def logps() -> Tensor:
    return torch.tensor(BETTER + WORSE, dtype=torch.float64)


@pytest.mark.parametrize(
    ("terms", "value"),
    [
        ({}, 0.673347167228034),
        ({"smoothing": 0.1}, 0.6773471672280341),
        ({"smoothing": 0.1, "robust": 1.0}, 0.668347167228034),
        ({"sft": 1.0}, 0.673347167228034 + 0.6666666666666666),
    ],
    ids=str,
)
def test_dpo_and_its_variants_have_their_worked_values(terms: dict[str, float], value: float) -> None:
    assert DPO.loss(logps(), pair(**terms)).item() == pytest.approx(value, **EXACT)


def test_dpo_moves_both_answers_alike_and_starts_at_log_2() -> None:
    given = logps().requires_grad_()
    (found,) = torch.autograd.grad(DPO.loss(given, pair()), given)
    slope = 0.04900013331200346
    assert found.tolist() == pytest.approx([-slope] * 3 + [slope] * 2, **EXACT)
    assert DPO.loss(torch.tensor(REF, dtype=torch.float64), pair()).item() == pytest.approx(0.6931471805599453, **EXACT)
    told = DPO.metrics(logps(), pair())
    assert told == {
        "margin": pytest.approx(0.04), "right": 1.0, "better": pytest.approx(0.06), "worse": pytest.approx(0.02),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("good", "logp", "ref", "zero", "weight", "value", "slope"),
    [
        (True, -2.0, -2.6, 1 / 6, 1.0, 0.48916836156445254, 3 * -0.008329422520293388),
        (True, -3.0, -2.5, 1 / 6, 1.0, 0.5166604965694115, 3 * -0.008324080928468687),
        (False, -2.7, -2.9, 1 / 6, 1.0, 0.5008333325617293, 3 * 0.008333310185228052),
        (False, -2.7, -2.9, 1 / 6, 1.33, 0.6661083323071001, 1.33 * 3 * 0.008333310185228052),
        (True, -2.0, -2.6, 0.0, 1.0, 0.48500449838059, None),
        (False, -2.7, -2.9, 0.0, 1.0, 0.5049998333399996, None),
    ],
)
def test_kto_has_its_worked_values(good, logp, ref, zero, weight, value, slope) -> None:
    """One token stands for the sum."""
    given = {"sign": torch.tensor([1 if good else -1]), "ref": torch.tensor([ref], dtype=torch.float64)}
    for name, one in {"beta": 0.1, "zero": zero, "weight": weight}.items():
        given[name] = torch.tensor([one], dtype=torch.float64)
    now = torch.tensor([logp], dtype=torch.float64, requires_grad=True)
    loss = KTO.loss(now, given)
    assert loss.item() == pytest.approx(value, **EXACT)
    (found,) = torch.autograd.grad(loss, now)
    assert slope is None or found.item() == pytest.approx(slope, rel=1e-9)


# --- from records to columns -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return load_tokenizer(str(tiny_model))


def told(answer: str) -> Record:
    asked = {"role": "user", "content": "Who keeps the harbour?"}
    return record_of({"messages": [asked, {"role": "assistant", "content": answer}]})


GOOD, BAD = told("Mara keeps it."), told("Nobody, it is closed.")


def raw(one: Record) -> msgspec.Raw:
    return msgspec.Raw(one.canonical)


def alone(tokenizer: PreTrainedTokenizerBase, one: Record, longest: int = 1000) -> Tokens:
    return tokenise(tokenizer, decode_record(one.canonical), longest)


def record(tokenizer: PreTrainedTokenizerBase, kind: str, worse: Record = BAD) -> PairRecord | RatedRecord:
    learned = [alone(tokenizer, one).learned for one in ((GOOD, BAD) if kind == "pair" else (BAD,))]
    given = file([-1.0 - n for n in range(sum(map(len, learned)))])
    if kind == "pair":
        return PairRecord(PairForm(raw(GOOD), raw(worse), PairTerms(beta=0.5)), reference=given)
    return RatedRecord(RatedForm(raw(BAD), False, RatedTerms(weight=1.25)), reference=given)


def file(values: list[float]) -> GivenBlob:
    blob = array("f", values).tobytes()
    return GivenBlob(digest_of(blob), blob)


def test_a_pair_is_two_sequences_with_their_signs_and_reference(tokenizer: PreTrainedTokenizerBase) -> None:
    one = record(tokenizer, "pair")
    assert isinstance(one, PairRecord)
    tokens = DPO.encode(tokenizer, one, 1000)
    tokens.check()
    better, worse = (alone(tokenizer, side) for side in (GOOD, BAD))
    assert tokens.sequences() == [(better.ids, better.mask), (worse.ids, worse.mask)]
    assert tokens.columns["sign"].tolist() == [1] * better.targets + [-1] * worse.targets
    assert tokens.columns["ref"].tolist() == [-1.0 - n for n in range(tokens.targets)]
    assert set(tokens.columns["beta"]) == {0.5}
    assert decode_learned(compared_json(one)) == msgspec.structs.replace(one, reference=None)
    assert objective_of(one) is DPO
    assert [one.content for one in as_text(compared_json(one)).messages] == [  # type: ignore[union-attr]
        "Who keeps the harbour?", "Mara keeps it.", "Nobody, it is closed.",
    ]  # fmt: skip


def test_a_rated_answer_has_its_sign_and_reference_and_the_z0_of_the_step(tokenizer: PreTrainedTokenizerBase) -> None:
    one = record(tokenizer, "rated")
    assert isinstance(one, RatedRecord)
    tokens = KTO.encode(tokenizer, one, 1000)
    tokens.check()
    assert set(tokens.columns["sign"]) == {-1} and "zero" not in tokens.columns
    assert set(tokens.columns["weight"]) == {1.25}
    assert decode_learned(compared_json(one)) == msgspec.structs.replace(one, reference=None)
    assert objective_of(one) is KTO
    logps = torch.tensor(tokens.columns["ref"]) + 0.5
    losses = [KTO.loss(logps, which.tensors(torch.device("cpu"))) for which in (tokens, with_zero(tokens, 3.0))]
    assert losses[0] > losses[1], "above z0 a bad answer loses less"


def test_sampled_tokens_are_learned_as_they_are(tokenizer: PreTrainedTokenizerBase) -> None:
    """An answer that the engine gave, and a correction after the engine's own prompt."""
    better, worse = (record_of({"prompt": "Who?", "completion": text}) for text in (" Mara.", " Nobody."))
    one = PairRecord(PairForm(raw(better), raw(worse)))
    known = [Sampled("r", (), (5, 6), 3), Sampled("r", (8, 9), (5, 6))]
    given = decode_learned(with_sampled(compared_json(one), known))
    assert isinstance(given, PairRecord)
    tokens = DPO.without_reference(tokenizer, given, 1000)
    (first, _), (second, mask) = tokens.sequences()
    assert first[:2] == [5, 6] and first[-1] == 3 and second == [5, 6, 8, 9] and mask == [False, False, True, True]


def test_what_cannot_be_compared_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    one = record(tokenizer, "pair")
    with pytest.raises(RecordRefused, match=r"does not fit into .* max_tokens = 12"):
        DPO.encode(tokenizer, one, 12)
    with pytest.raises(RecordRefused, match="are the same tokens"):
        DPO.encode(tokenizer, record(tokenizer, "pair", worse=GOOD), 1000)
    assert one.reference is not None
    count = len(one.reference.blob) // 4
    refused = {
        "log-probabilities for": file([-1.0] * (count - 1)),
        "gave token 1 the log-probability -9999": file([-9999.0] * count),
        "was changed": GivenBlob(one.reference.digest, one.reference.blob[:-4]),
        "it was not given": None,
    }
    for why, blob in refused.items():
        with pytest.raises(RecordRefused, match=why):
            DPO.encode(tokenizer, msgspec.structs.replace(one, reference=blob), 1000)
    for objective in (DPO, KTO):
        with pytest.raises(RecordRefused, match="it is no "):
            objective.encode(tokenizer, decode_record(GOOD.canonical), 1000)
