"""The weights before the first step as the reference of a group (`kl`)."""

import shutil
from array import array
from pathlib import Path

import pytest
import torch
from support.attached import loop_on

from apollod.products import products_in
from apollod.trainer.objectives.loss import log_probabilities
from apollod.trainer.objectives.policy import GRPO
from apollod.wire import messages as m
from apollod.wire.comparisons import GroupForm, GroupRecord, compared_json, decode_learned, with_file, with_reference
from apollod.wire.rollouts import Group, Terms, rollout, write_group
from apollod.wire.teacher import GivenBlob, digest_of

ANSWERS = {0.0: [5, 9, 11, 12], 1.0: [5, 9, 14, 15, 16]}


def record(**terms: float) -> bytes:
    group = Group(
        tuple(
            rollout(ids, [False, False] + [True] * len(ids[2:]), [-2.0] * len(ids[2:]), score, 0.5, versions=(0, 1))
            for score, ids in ANSWERS.items()
        )
    )
    file = write_group(group)
    form = GroupForm("sums", [], [], "grpo", digest_of(file), list(ANSWERS), Terms(**terms))
    return with_file(compared_json(GroupRecord(form)), GivenBlob(digest_of(file), file))


def test_it_is_that_of_the_files_whatever_the_weights_have_become(tiny_model: Path, tmp_path: Path) -> None:
    loop = loop_on(tiny_model)
    learner = loop._attached()
    untrained = learner.attached.weights.fingerprint()
    tokens = GRPO.encode(learner.tokenizer, decoded(record()), 1000)
    with products_in(learner.products):
        expected = log_probabilities(learner.attached.model, tokens)
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    weights = other / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2] ^= 1
    weights.write_bytes(data)
    with torch.no_grad():
        for _, parameter in learner.attached.trainable:
            parameter.mul_(1.5)
    places = (str(tmp_path / "gone"), str(other), str(tiny_model))
    answer = loop._answer(m.Encode([("g", record(kl=0.1)), ("plain", record())], places, untrained))
    assert isinstance(answer, m.EncodeDone)
    given, plain = answer.results
    assert not given.refused and given.untrained and digest_of(given.file) == given.reference
    assert array("f", given.file).tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert not plain.file and not plain.untrained and plain.digest != given.digest

    again = with_reference(record(kl=0.1), GivenBlob(given.reference, given.file))
    found = loop._answer(m.Encode([("g", again)]))
    assert isinstance(found, m.EncodeDone) and not found.results[0].file, "it is computed once"
    assert (found.results[0].digest, found.results[0].reference) == (given.digest, given.reference)
    done = loop._answer(m.Step(1, [m.StepExample("g", again, given.digest)], 1e-3, objective="grpo"))
    assert isinstance(done, m.StepDone) and done.applied, done


def test_weights_that_are_not_kept_are_refused_with_where_they_should_be(tiny_model: Path) -> None:
    answer = loop_on(tiny_model)._answer(m.Encode([("g", record(kl=0.1))], (str(tiny_model),), "0" * 16))
    assert isinstance(answer, m.EncodeDone)
    assert f"which are not in {tiny_model}" in answer.results[0].refused and "keep_base" in answer.results[0].refused


def test_a_reference_of_other_rollouts_is_refused() -> None:
    short = array("f", [-1.0]).tobytes()
    with_other = with_reference(record(kl=0.1), GivenBlob(digest_of(short), short))
    with pytest.raises(Exception, match="1 log-probabilities for 5 learned tokens"):
        decoded(with_other).read()


def decoded(canonical: bytes) -> GroupRecord:
    found = decode_learned(canonical)
    assert isinstance(found, GroupRecord)
    return found
