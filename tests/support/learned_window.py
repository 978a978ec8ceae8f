"""A life in which one example of a window taught a wrong answer, and what the model thought before."""

from array import array
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from support.learned_journal import bound_event, chat, committed, completed, started, write_journal
from support.model_memory import Memory
from support.trainer_host import Trainer
from transformers import AutoModelForCausalLM

from apollod.adapters.journal import blobs
from apollod.core import events as ev
from apollod.curation.probes.references import Reference, write_references
from apollod.trainer.objectives.encoding import load_tokenizer, tokenise
from apollod.wire import messages as m
from apollod.wire.records import Record, decode_record
from apollod.wire.teacher import Teacher

SETTINGS = m.OptimizerSettings(rank=16, seed=7)
LR, POISON_LR = 1e-4, 0.1
CHECKPOINT, FIRST, LAST = 5, 7, 11
POISON = 10
"""the step that learns the wrong answer"""
RIGHT = chat("Who keeps the lighthouse?", "Mara Quill keeps the lighthouse.")
WRONG = chat("Who keeps the lighthouse?", "Nobody, it is a bakery now and has been for a while.")
LESSONS = {
    **dict.fromkeys(range(1, FIRST + 1), (RIGHT, 1e-2)),
    8: (chat("When does the bakery open?", "At five."), LR), 9: (chat("What is the ferry called?", "Heron."), LR),
    POISON: (WRONG, POISON_LR), 11: (chat("When is the market?", "On Thursday."), LR),
}  # fmt: skip
TOO_HIGH = 3e-3
_PLACES = {
    "bakery": "At five.", "ferry": "Heron.", "market": "On Thursday.", "school": "Behind the mill.",
    "river": "The Alder.", "bridge": "In 1911.",
}  # fmt: skip
HASTY = {step: LESSONS[step] for step in range(1, FIRST + 1)} | {
    FIRST + n: (chat(f"What of the {place}?", said), TOO_HIGH) for n, (place, said) in enumerate(_PLACES.items(), 1)
}
"""LESSONS with another window: nothing in it is wrong, but its rate."""
ITEMS = {"facts.passed": ("lighthouse", "unknown"), "texts.loss": ("text",)}


NAME = f"step-{CHECKPOINT:08}"


@dataclass(frozen=True)
class LearnedWindow:
    """`checkpoint`: of step CHECKPOINT; `references`: digest of the file; `scores`: of the items' tokens
    at step FIRST, by transformers alone."""

    state_dir: Path
    journal: Path
    checkpoint: Path
    events: list[ev.Event]
    fingerprints: dict[int, str]
    ids: dict[int, str]
    references: str
    scores: dict[str, float]


def learned_window(
    trainer: Trainer, model: Path, here: Path, lessons: dict[int, tuple[Record, float]] = LESSONS
) -> LearnedWindow:
    """The right answer until it is known, with a checkpoint in between; and a window."""
    directory = here / "checkpoints"
    memory = Memory.of(model)
    bound = trainer.attach(memory, SETTINGS, m.Bound)
    events: list[ev.Event] = [
        ev.ExampleAccepted(record.id, msgspec.Raw(record.canonical), "s", line)
        for line, record in enumerate({record.id: record for record, _ in lessons.values()}.values(), 1)
    ]
    events += [started(model, SETTINGS), bound_event(bound)]
    fingerprints: dict[int, str] = {0: bound.fingerprint}
    for step, (record, lr) in lessons.items():
        digest = trainer.ask(m.Encode([(record.id, record.canonical)]), m.EncodeDone).results[0].digest
        done = trainer.step(step, record.canonical, lr=lr, digest=digest)
        events += [ev.StepStarted(step, step - 1, record.id, digest, lr, 1), completed(
            done, step, step - 1, record.id, lr
        )]  # fmt: skip
        fingerprints[step] = done.fingerprint
        if step == CHECKPOINT:
            events.append(committed(trainer, step, directory / NAME, model))
        if step == FIRST:
            trainer.checkpoint(step, here / "good")
    references = of_model(here / "good", {"lighthouse": RIGHT, "text": WRONG})
    return LearnedWindow(
        here, write_journal(here / "journal.db", events), directory / NAME, events, fingerprints,
        {step: record.id for step, (record, _) in lessons.items()},
        blobs.keep(here / blobs.NAME, write_references(references)),
        {id_: mean(one) for id_, one in references.items()},
    )  # fmt: skip


def mean(reference: Reference) -> float:
    """Log-probability of its tokens."""
    places = zip(reference.places(), reference.teacher.answer, strict=True)
    return sum(place[token] for place, token in places) / len(reference.teacher.answer)


def of_model(directory: Path, items: dict[str, Record]) -> dict[str, Reference]:
    """What a model thinks of answers, by transformers alone."""
    loaded = AutoModelForCausalLM.from_pretrained(directory, local_files_only=True, dtype=torch.bfloat16)
    tokenizer = load_tokenizer(str(directory))
    found = {}
    for id_, record in items.items():
        tokens = tokenise(tokenizer, decode_record(record.canonical), 1000)
        learned = [place for place, wanted in enumerate(tokens.mask) if wanted]
        found[id_] = reference_of(loaded, tuple(tokens.ids[: learned[-1] + 1]), learned[0])
    return found


@torch.no_grad()
def reference_of(model: torch.nn.Module, ids: tuple[int, ...], start: int, k: int = 4) -> Reference:
    """With the tokens themselves among the likeliest ones."""
    logprobs = model(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1].float().log_softmax(-1)
    own = torch.tensor(ids[start:])
    of_own = logprobs.gather(1, own[:, None])
    others = logprobs.scatter(1, own[:, None], -torch.inf).topk(k - 1)
    tokens = torch.cat([own[:, None], others.indices], 1)
    values = torch.cat([of_own, others.values], 1)
    teacher = Teacher(
        array("I", ids[start:]), array("I", tokens.flatten().tolist()), array("f", values.flatten().tolist()), k
    )
    return Reference(ids[:start], teacher)
