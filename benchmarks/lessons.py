"""Measures the cost of many known lessons: of listing them, and at the start.

Two journals of as many events and about as many bytes: one has 10,000 known lessons, the other one examples that were
given and withdrawn. A daemon is started on each, in turns, until it answers: elapsed and CPU seconds. The first start
folds all events and is reported separately (`first_`); each stop leaves a snapshot, from which the next one starts.
`apollod ctl lesson list` asks a daemon on the first journal; it is a whole process from exec to exit, in turns with
`apollod version`, whose time is subtracted.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import anyio
import msgspec
from msgspec.structs import replace

from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.stages import Stage
from apollod.curation.lessons.worded import told, wordings
from apollod.testing import daemon as driver
from benchmarks import report
from benchmarks.daemon import build_model

LESSONS, LISTS, STARTS = 10_000, 9, 7
AT_ONCE = 100
"""lessons whose events are one transaction"""
GIVEN = Given("Quillon listens on port 7341.")
WORDED = wordings(GIVEN)
AT_NS = 1_700_000_000_000_000_000
LISTED: dict[str, tuple[str, ...]] = {
    "list": (),
    "list_json": ("--json",),
    "list_all": ("--limit", "0"),
    "list_all_json": ("--limit", "0", "--json"),
}
LIST_MAX_S, START_MAX = 0.3, 1.1


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--lessons", type=int, default=LESSONS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        root = Path(directory)
        model = build_model(root / "model", "random")
        with_lessons, without = root / "lessons.db", root / "examples.db"
        size = _write(with_lessons, (_lesson(n) for n in range(1, args.lessons + 1)))
        _write(without, (_examples(n, size // args.lessons) for n in range(1, args.lessons + 1)))
        figures: dict[str, float] = {
            "lessons": args.lessons,
            "bytes_lessons": size,
            "bytes_examples": without.stat().st_size,
        }
        daemons = {path.stem: _daemon(root / path.stem, model, path) for path in (with_lessons, without)}
        figures |= _starts(daemons)
        figures |= _lists(daemons["lessons"])
    ratios = {
        f"{start}{suffix}": figures[f"{start}_lessons{suffix}_s"] / figures[f"{start}_examples{suffix}_s"]
        for start in ("start", "first_start")
        for suffix in ("", "_cpu")
    }
    goals = {name: report.goal(figures[f"{name}_s"], LIST_MAX_S, at_most=True) for name in ("list", "list_json")}
    goals |= {name: report.goal(ratios[name], START_MAX, at_most=True) for name in ("start", "start_cpu")}
    report.report("lessons", figures, ratios, goals, threads=1, as_json=args.json)


def _lesson(number: int) -> list[ev.Event]:
    """All events of a lesson that was known at once."""
    id_, worded = f"L{number}", WORDED
    held = tuple(ev.Said(n, "It is 7341.", True) for n in range(len(worded.held_out)))
    found = (len(held), len(held))
    return [
        ev.LessonGiven(lesson=id_, given=Given(f"Quillon {number} listens on port 7341."), by="benchmark"),
        ev.LessonBegun(lesson=id_, stage=Stage.WORDING, why="given"),
        ev.LessonWorded(
            lesson=id_, told=told(GIVEN), worded=replace(worded, key=f"{worded.key} {number}", also=())
        ),
        ev.LessonAsked(
            lesson=id_, stage=Stage.BASELINE, mode="bare", round=1, answers=held, weights_version=0
        ),
        ev.LessonKnown(
            lesson=id_, step=0, before={"bare": found}, after=found, steps=0, drift=0.0, seconds=1.0,
            prompt=worded.practice[0].prompt,
        ),
    ]  # fmt: skip


def _examples(number: int, size: int) -> list[ev.Event]:
    """Events of two withdrawn examples, about `size` bytes in total."""
    ids = [f"{2 * number + n:032x}" for n in range(2)]
    record = msgspec.Raw(msgspec.json.encode({"text": "x" * max(0, size // 2 - 600)}))
    accepted = [ev.ExampleAccepted(example=id_, record=record, source="f", line=number) for id_ in ids]
    encoded = [ev.ExampleEncoded(example=id_, tokens=9, targets=9, cut=0, digest=id_) for id_ in ids]
    return [*accepted, *encoded, ev.ExampleWithdrawn(examples=tuple(ids), by="benchmark", reason="none")]


def _together(groups: Iterator[Sequence[ev.Event]]) -> Iterator[list[ev.Event]]:
    """Groups of events for one transaction, of an efficient size."""
    while some := list(islice(groups, AT_ONCE)):
        yield [event for events in some for event in events]


def _write(path: Path, groups: Iterator[Sequence[ev.Event]]) -> int:
    """Write a journal of these events; returns its size in bytes."""

    async def write() -> None:
        journal = await Journal.open(path)
        for number, events in enumerate(_together(groups)):
            await journal.append(events, AT_NS + number)
        await journal.close()

    anyio.run(write)
    return path.stat().st_size


def _daemon(root: Path, model: Path, journal: Path) -> driver.Daemon:
    (root / "state").mkdir(parents=True)
    shutil.move(journal, root / "state" / "journal.db")
    port = driver.free_port()
    config = driver.config_of(root, model, port, log='level = "warning"\n')
    return driver.Daemon(root, config, port, "apollod.testing.stub_engine")


def _starts(daemons: dict[str, driver.Daemon]) -> dict[str, float]:
    """Seconds until each daemon answers, in turns: the first time, and from its snapshot."""
    found: dict[str, list[float]] = {}
    for turn in range(STARTS + 1):
        for name, daemon in daemons.items():
            for suffix, seconds in zip(("", "_cpu"), _started(daemon), strict=True):
                found.setdefault(f"{'' if turn else 'first_'}start_{name}{suffix}_s", []).append(seconds)
    return {name: report.median(times) for name, times in found.items()}


def _started(daemon: driver.Daemon) -> tuple[float, float]:
    """Elapsed and CPU seconds of a start; the daemon is stopped afterwards."""
    began = time.perf_counter()
    daemon.start()
    daemon.wait(lambda s: True, "to answer", poll_s=0.005)
    elapsed = time.perf_counter() - began
    assert daemon.process is not None
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    daemon.stop()
    return elapsed, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _lists(daemon: driver.Daemon) -> dict[str, float]:
    """Seconds of each form of the list, in total and net."""
    apollod = [sys.executable, "-m", "apollod"]
    commands = {
        name: [*apollod, "ctl", "lesson", "list", *more, "--socket", str(daemon.socket)]
        for name, more in LISTED.items()
    }
    times: dict[str, list[float]] = {name: [] for name in ("version", *commands)}
    try:
        daemon.start()
        daemon.wait_ready()
        for _ in range(LISTS):
            times["version"].append(_timed([*apollod, "version"]))
            for name, command in commands.items():
                times[name].append(_timed(command))
    finally:
        daemon.end()
    own = {
        f"{name}_own_s": report.median([a - b for a, b in zip(times[name], times["version"], strict=True)])
        for name in commands
    }
    return {f"{name}_s": report.median(all_) for name, all_ in times.items()} | own


def _timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
