"""A journal of what a trainer did, written as the daemon writes it."""

import asyncio
import json
from pathlib import Path

import msgspec
from support.trainer_host import Trainer

from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.core.settings import TrainerSettings
from apollod.wire import messages as m
from apollod.wire.records import Record, parse_line

AT = 1_700_000_000_000_000_000


def chat(question: str, answer: str) -> Record:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return parse_line(json.dumps({"messages": messages}).encode())


def write_journal(path: Path, events: list[ev.Event]) -> Path:
    async def write() -> None:
        journal = await Journal.open(path)
        await journal.append(events, AT)
        await journal.close()

    asyncio.run(write())
    return path


def started(model: Path, s: m.OptimizerSettings) -> ev.DaemonStarted:
    trainer = TrainerSettings(**msgspec.structs.asdict(s))
    return ev.DaemonStarted(1, "0", ev.Settings(model_path=str(model), trainer=trainer))


def completed(done: m.StepDone, number: int, parent: int, example: str, lr: float) -> ev.StepCompleted:
    return ev.StepCompleted(
        step=number, parent=parent, example=example, applied=done.applied, loss=done.loss, lr=lr,
        grad_norm=done.grad_norm, update_norm=done.update_norm, tokens=done.tokens, targets=done.targets,
        skipped_zero=done.skipped_zero, skipped_nonfinite=done.skipped_nonfinite, fingerprint=done.fingerprint,
        seconds=0.0,
    )  # fmt: skip


def committed(trainer: Trainer, step: int, path: Path, model: Path) -> ev.CheckpointCommitted:
    written = trainer.checkpoint(step, path, model)
    assert not written.error, written
    return ev.CheckpointCommitted(step, str(path), written.fingerprint, written.bytes, 0.0)


def bound_event(bound: m.Bound) -> ev.TrainerBound:
    return ev.TrainerBound(
        1, bound.fingerprint, bound.parameters, bound.elements, bound.versions, bound.held, bound.tied,
        bound.products,
    )  # fmt: skip
