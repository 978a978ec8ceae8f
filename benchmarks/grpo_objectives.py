"""Measures what objectives cost beside plain learning: a whole step of a trainer, its example decoded and tokenised,
in turns in one process on one thread, with the undo ring. A ratio is the median over rounds, of elapsed time and, with
"_cpu", of CPU seconds, since a neighbour costs waiting and not work.

grpo     a group of 8 answers, against the same 8 sequences as plain examples in one batch: the same tokens learned, in
         matrices of the same shapes, so that what differs is the loss, its columns and its figures
dpo      a pair of answers, against the better one alone: twice the tokens
distill  an answer from the 64 likeliest tokens of a teacher at each place (the objective `context`), against the same
         answer
"""

import os
import time
from array import array
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from apollod import foreign_wheels

foreign_wheels.guard_lazily()

from apollod.core.facts.training import StepTerms  # noqa: E402
from apollod.products import products_in  # noqa: E402
from apollod.trainer import memory  # noqa: E402
from apollod.trainer.learner import Learner  # noqa: E402
from apollod.trainer.objectives.table import objective_of  # noqa: E402
from apollod.trainer.objectives.tokens import Tokens  # noqa: E402
from apollod.trainer.scoring import score  # noqa: E402
from apollod.trainer.step import be_deterministic, run_step  # noqa: E402
from apollod.wire.comparisons import (  # noqa: E402
    GroupForm,
    GroupRecord,
    PairForm,
    PairRecord,
    compared_json,
    decode_learned,
    with_file,
    with_reference,
)
from apollod.wire.records import Message, MessagesRecord, parse_line  # noqa: E402
from apollod.wire.rollouts import Group, rollout, write_group  # noqa: E402
from apollod.wire.teacher import GivenBlob, Teacher, digest_of, write_teacher  # noqa: E402
from benchmarks import report  # noqa: E402
from benchmarks.holding import learner_of  # noqa: E402

ANSWERS, LIKELIEST = 8, 64
GOALS = {"grpo": 1.05, "dpo": 2.1, "distill": 1.15}
AGAINST = {"grpo": "sft_group", "dpo": "sft", "distill": "sft"}
WORDS = "the keeper wrote in the log that the ferry came late and the harbour was quiet until the lamp was lit".split()
SHORT, LONG = 24, 90
"""words of the answers of a group, and of a single one"""
SHARPER = 1.4
"""the teacher's logits are so many times the model's: where they agree, nothing is learned"""


class Variant(NamedTuple):
    """What a step learns: canonical records with their files, at once if there are several."""

    records: list[bytes]


def measure(
    model: Path, name: str, rounds: int, figures: dict[str, float], ratios: dict[str, float], goals: dict[str, Any]
) -> None:
    """Add the figures of this model, with the prefix `name`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    be_deterministic()
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:  # as the trainer does
        memory.keep_pages()
    learner = _learner(model)
    variants = _variants(learner)
    times = _times(learner, variants, rounds)
    for variant, clocks in times.items():
        figures |= {f"{name}_{variant}{clock}_s": report.median(taken) for clock, taken in clocks.items()}
        figures[f"{name}_{variant}_tokens"] = sum(len(one.ids) for one in _batch(learner, variants[variant])[1])
    for variant, plain in AGAINST.items():
        for clock, taken in times[variant].items():
            both = zip(taken, times[plain][clock], strict=True)
            ratios[f"{name}_{variant}_to_sft{clock}"] = report.median([ours / other for ours, other in both])
        goals[f"{name}_{variant}"] = report.goal(ratios[f"{name}_{variant}_to_sft"], GOALS[variant], True)
    torch.set_num_threads(threads)


def _learner(model: Path) -> Learner:
    learner = learner_of(model)
    assert learner.undo is not None
    learner.undo.restart(learner.attached.weights.fingerprint())
    return learner


# --- what is learned --------------------------------------------------------------------------------------------------


def _variants(learner: Learner) -> dict[str, Variant]:
    short = [_conversation(SHORT, number) for number in range(ANSWERS)]
    better, worse = _conversation(LONG, 0), _conversation(LONG, 1)
    one = _canonical(better)
    return {
        "sft": Variant([one]), "sft_group": Variant([_canonical(each) for each in short]),
        "grpo": Variant([_group(learner, short)]), "dpo": Variant([_pair(learner, better, worse)]),
        "distill": Variant([with_file(one, _given(_teacher(learner, one)))]),
    }  # fmt: skip


def _conversation(words: int, number: int) -> MessagesRecord:
    said = " ".join(WORDS[(place + number * 3) % len(WORDS)] for place in range(words))
    return MessagesRecord([Message("user", "What is in the log of the harbour?"), Message("assistant", said)])


def _canonical(record: MessagesRecord) -> bytes:
    messages = [{"role": one.role, "content": one.content} for one in record.messages]
    return parse_line(msgspec.json.encode({"messages": messages})).canonical


def _group(learner: Learner, answers: list[MessagesRecord]) -> bytes:
    """The tokens of the plain examples as rollouts, with the model's own log-probabilities."""
    rollouts = []
    for number, answer in enumerate(answers):
        tokens = _tokens(learner, _canonical(answer))
        logprobs = [min(0.0, one) for one in _logprobs(learner, tokens)]
        # Of two versions: they are not compared with those of the step, which change from round to round.
        rollouts.append(rollout(tokens.ids, tokens.mask, logprobs, float(number), versions=(0, 1)))
    blob = write_group(Group(tuple(rollouts)))
    form = GroupForm(
        "bench", answers[0].messages[:-1], [one.messages[-1].content for one in answers], "grpo", digest_of(blob),
        [float(number) for number in range(len(answers))],
    )  # fmt: skip
    return with_file(compared_json(GroupRecord(form)), _given(blob))


def _pair(learner: Learner, better: MessagesRecord, worse: MessagesRecord) -> bytes:
    record = PairRecord(PairForm(*(msgspec.Raw(_canonical(one)) for one in (better, worse))))
    return with_reference(compared_json(record), _given(learner.reference(record)))


@torch.no_grad()
def _teacher(learner: Learner, record: bytes) -> bytes:
    tokens = _tokens(learner, record)
    with products_in(learner.products):
        logits = learner.attached.model(input_ids=torch.tensor([tokens.ids]), use_cache=False).logits[0, :-1].float()
    found = (SHARPER * logits[torch.tensor(tokens.mask[1:])]).log_softmax(-1).topk(LIKELIEST)
    ids, logprobs = found.indices.flatten().tolist(), found.values.flatten().tolist()
    return write_teacher(Teacher(array("I", tokens.learned), array("I", ids), array("f", logprobs), LIKELIEST))


def _given(blob: bytes) -> GivenBlob:
    return GivenBlob(digest_of(blob), blob)


def _tokens(learner: Learner, record: bytes) -> Tokens:
    return learner.encode(record, objective_of(decode_learned(record)))


def _logprobs(learner: Learner, tokens: Tokens) -> list[float]:
    """Of the learned tokens."""
    with products_in(learner.products):
        said = score(learner.attached.model, tuple(tokens.ids))
    return [one for one, learned in zip(said, tokens.mask[1:], strict=True) if learned]


# --- steps ------------------------------------------------------------------------------------------------------------


def _times(learner: Learner, variants: dict[str, Variant], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of the steps of each variant, in turns: elapsed (""), and of the CPU ("_cpu")."""
    clocks = {"": time.perf_counter, "_cpu": time.process_time}
    found: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in clocks} for name in variants}
    number = 0
    for turn in range(rounds + 1):
        for name, variant in variants.items():
            number += 1
            began = {suffix: clock() for suffix, clock in clocks.items()}
            _step(learner, variant, number)
            for suffix, clock in clocks.items():
                if turn:  # the first turn warms up
                    found[name][suffix].append(clock() - began[suffix])
    return found


def _batch(learner: Learner, variant: Variant) -> tuple[Any, list[Tokens]]:
    objective = objective_of(decode_learned(variant.records[0]))
    return objective, [learner.encode(record, objective) for record in variant.records]


def _step(learner: Learner, variant: Variant, number: int) -> None:
    objective, batch = _batch(learner, variant)
    terms = StepTerms(objective=objective.name, together=len(batch) > 1)
    with products_in(learner.products):
        done = run_step(learner.attached, learner.optimizer, batch, number, 1e-7, terms, objective)
    if not done.applied:
        raise SystemExit(f"a step of {objective.name} wrote nothing: {done.note}")
