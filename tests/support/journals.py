"""A small journal as a real run writes it: six lines, four of them tried, three checkpoints, a crash of the trainer.

And what people, disks and other programs do to a journal.
"""

import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.core.facts.quality.sequential import Metric
from apollod.wire import event_codec
from apollod.wire.event_codec import chain

AT = 1_700_000_000_123_456_789
EXAMPLES = [f"{name}{'0' * 26}{number:04d}{name}" for number, name in enumerate("abcdef", 1)]
A, B, C, D, E, F = EXAMPLES
TWIN = A[:8] + "f" * 24
BASE = "00000000000000ba"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Journal]:
    """A journal, closed in the end."""
    journal = await Journal.open(path)
    try:
        yield journal
    finally:
        await journal.close()


def paused(number: int) -> ev.TrainingPaused:
    """An event that can be told from others."""
    return ev.TrainingPaused(by="test", reason=str(number))


def step_completed(step: int, parent: int, example: str, loss: float | None = 1.5) -> ev.StepCompleted:
    """The result of a step."""
    return ev.StepCompleted(
        step=step, parent=parent, example=example, applied=loss is not None, loss=loss, lr=1e-5, grad_norm=0.5,
        update_norm=0.1, tokens=9, targets=4, skipped_zero=0, skipped_nonfinite=0, fingerprint=f"{step:016x}",
        seconds=0.25, note="" if loss is not None else "loss is not finite",
    )  # fmt: skip


def completed(step: int, parent: int, example: str, loss: float | None = 1.5) -> list[ev.Event]:
    """Intent and result of a step."""
    begun = ev.StepStarted(step=step, parent=parent, example=example, digest="d", lr=1e-5, window=1)
    return [begun, step_completed(step, parent, example, loss)]


def accepted(example: str, line: int, source: str = "src") -> ev.ExampleAccepted:
    """An example of a line."""
    return ev.ExampleAccepted(
        example=example, record=msgspec.Raw(b'{"text":"line %d"}' % line), source=source, line=line
    )


STORY: list[ev.Event] = [
    ev.EngineSpawned(pid=10, model_dir="/m", attempt=1),
    ev.TrainerSpawned(pid=11, attempt=1),
    ev.TrainerBound(pid=11, fingerprint=BASE, parameters=2, elements=10),
    ev.SourceDiscovered(source="src", path="/in/a.jsonl"),
    *[accepted(example, number) for number, example in enumerate(EXAMPLES, 1)],
    accepted(TWIN, 1, "ctl:/home/me/more.jsonl"),
    ev.SourceConsumed(source="src", path="/in/a.jsonl", offset=600, line=6, accepted=6, duplicates=0, rejected=0),
    ev.ExampleDuplicate(example=A, source="src", line=7),
    ev.SourceQuarantined(
        source="src", path="/in/a.jsonl", line=8, reason="not JSON", bytes=3, sha256="aa", kept="/q/aa"
    ),
    ev.ExampleEncoded(example=A, tokens=9, targets=4, cut=0, digest="d"),
    ev.ExampleRejected(example=B, reason="no target tokens"),
    *completed(1, 0, A),
    ev.CheckpointCommitted(step=1, path="/c/1", fingerprint=f"{1:016x}", bytes=7, seconds=0.5),
    *completed(2, 1, C, None),
    ev.StepStarted(step=3, parent=2, example=D, digest="d", lr=1e-5, window=1),
    ev.StepFailed(step=3, example=D, reason="out of memory", attempts=3),
    ev.TrainerExited(pid=11, code=-9, reason="killed"),
    ev.CheckpointFailed(step=2, path="/c/2", reason="disk full"),
    *completed(4, 2, E),
    ev.CheckpointCommitted(step=4, path="/c/4", fingerprint=f"{4:016x}", bytes=7, seconds=0.5),
    ev.CheckpointRemoved(step=1, path="/c/1"),
    ev.StepStarted(step=5, parent=4, example=F, digest="d", lr=1e-5, window=1),
]


TAKEN_BACK: list[ev.Event] = [
    ev.StepFailed(
        step=5, example=F, reason="a rollback came before it was done", attempts=0, apart=True, examples=(F,)
    ),
    ev.RollbackRequested(to=9, by="ctl"),
    ev.RollbackRefused(to=9, reason="there is no step 9 before step 4"),
    ev.RollbackRequested(to=0, by="ctl"),
    ev.RollbackStarted(to=0, from_step=4, fingerprint=BASE, origin="", replay=(), undone=(4, 2, 1), examples=(E, A)),
    ev.RollbackCompleted(to=0, from_step=4, fingerprint=BASE, how="memory", replayed=0, seconds=0.25),
    ev.ExampleRequeued(example=A, tier="bulk", by="ctl"),
]
"""goes on with STORY"""


def write(path: Path, story: list[ev.Event]) -> Path:
    """A journal with these events."""

    async def main() -> None:
        journal = await Journal.open(path)
        await journal.append(story, AT)
        await journal.close()

    anyio.run(main)
    return path


@contextmanager
def shell(path: Path) -> Iterator[sqlite3.Connection]:
    """A person with a SQLite shell."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


def edit(path: Path, *statements: str) -> None:
    """Change events behind the daemon's back."""
    with shell(path) as db:
        for name in ("events_unchanged", "events_kept"):
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)


def flip(path: Path, text: bytes, bit: int = 0) -> None:
    """One bit of the first byte of the only place in the file where this stands."""
    data = bytearray(path.read_bytes())
    assert data.count(text) == 1
    data[data.index(text)] ^= 1 << bit
    path.write_bytes(data)


def append_row(path: Path, kind: str, version: int, body: str, key: str = "") -> None:
    """An event as a newer apollod would chain it."""
    with shell(path) as db:
        ((seq, prev),) = db.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchall()
        hash_ = chain(prev, seq + 1, AT, kind, version, key, body.encode())
        db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (seq + 1, AT, kind, version, key, body, prev, hash_)
        )


MEASURED = (
    ev.QualityMeasured(
        number=3, why="steps", step=4, probes="p", share=0.5,
        figures={"facts.passed": {"a": 1.0, "b": 0.0, "c": None}, "repetition": {"a": 0.25}},
        after={"facts.passed": Metric(0.05, 1.0, drop=0.5)},
    ),
    ev.QualityAlarmed(
        incident=1, step=4, to=0, metrics=("facts.passed",), drops={"facts.passed": ev.Drop(0.5, 0.1, 0.9)}
    ),
)  # fmt: skip


def dream_of(path: Path, example: str) -> Path:
    """A signal, two dreams and what came of them, in words that this apollod does not know; and a measurement."""
    for kind, key, body in (
        ("signal.flagged", example, f'{{"example":"{example}","signal":"correction","by":"me"}}'),
        ("dream.requested", "d1", '{"dream":"d1"}'),
        ("dream.imagined", "d1", '{"dream":"d1","scenario":"a harbour"}'),
        ("dream.requested", "d2", '{"dream":"d2"}'),
        ("verdict.given", "d1", '{"dream":"d1","verdict":"good","by":"judge","reason":"kind"}'),
        ("dream.settled", "d1", f'{{"dream":"d1","example":"{example}"}}'),
        *((e.kind, e.key(), event_codec.encode_body(e).decode()) for e in MEASURED),
    ):
        append_row(path, kind, 1, body, key)
    return path


def foreign_log(path: Path, make: Callable[[Path], Any]) -> None:
    """Beside the journal lies the log of another database, as it is while that is in use."""
    other = path.parent.parent / "other" / "other.db"
    other.parent.mkdir()
    held = make(other)
    shutil.copy(f"{other}-wal", f"{path}-wal")
    held.close()


def other_program(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE theirs (x)")
    return db


def other_journal(path: Path) -> sqlite3.Connection:
    """Its whole content is in the log, so that over our file it looks like a good journal."""
    write(path.with_name("source.db"), STORY[:3])
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(path.with_name("source.db"))) as source:
        source.backup(db)
    return db
