"""A small journal as a real run writes it: six lines, four of them tried, three checkpoints, a crash of the trainer."""

from pathlib import Path

import anyio
import msgspec

from apollod.adapters.journal import Journal
from apollod.core import events as ev

AT = 1_700_000_000_123_456_789
EXAMPLES = [f"{name}{'0' * 26}{number:04d}{name}" for number, name in enumerate("abcdef", 1)]
A, B, C, D, E, F = EXAMPLES
TWIN = A[:8] + "f" * 24
BASE = "00000000000000ba"


def completed(step: int, parent: int, example: str, loss: float | None = 1.5) -> list[ev.Event]:
    """Intent and result of a step."""
    return [
        ev.StepStarted(step=step, parent=parent, example=example, digest="d", lr=1e-5, window=1),
        ev.StepCompleted(
            step=step, parent=parent, example=example, applied=loss is not None, loss=loss, lr=1e-5, grad_norm=0.5,
            update_norm=0.1, tokens=9, targets=4, skipped_zero=0, skipped_nonfinite=0, fingerprint=f"{step:016x}",
            seconds=0.25, note="" if loss is not None else "loss is not finite",
        ),
    ]


def accepted(example: str, line: int, source: str = "src") -> ev.ExampleAccepted:
    """An example of a line."""
    return ev.ExampleAccepted(example=example, record=msgspec.Raw(b'{"text":"line %d"}' % line), source=source, line=line)


STORY: list[ev.Event] = [
    ev.EngineSpawned(pid=10, model_dir="/m", attempt=1),
    ev.TrainerSpawned(pid=11, attempt=1),
    ev.TrainerBound(pid=11, fingerprint=BASE, parameters=2, elements=10),
    ev.SourceDiscovered(source="src", path="/in/a.jsonl"),
    *[accepted(example, number) for number, example in enumerate(EXAMPLES, 1)],
    accepted(TWIN, 1, "ctl:/home/me/more.jsonl"),
    ev.SourceConsumed(source="src", path="/in/a.jsonl", offset=600, line=6, accepted=6, duplicates=0, rejected=0),
    ev.ExampleDuplicate(example=A, source="src", line=7),
    ev.SourceQuarantined(source="src", path="/in/a.jsonl", line=8, reason="not JSON", bytes=3, sha256="aa", kept="/q/aa"),
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


def write(path: Path, story: list[ev.Event]) -> Path:
    """A journal with these events."""

    async def main() -> None:
        journal = await Journal.open(path)
        await journal.append(story, AT)
        await journal.close()

    anyio.run(main)
    return path
