"""Measures how long `apollod ctl review` takes until the first example is on the terminal, with thousands of them held.

A real process on a real pseudo-terminal of 80x24, each held example with a divergence that orders it: the time until
the interpreter runs, until our modules are loaded, until the bytes of the first picture have arrived (`picture_s`, the
goal; `picture_cpu_s` its processor time), and until textual has taken over and takes keys (`keys_s`). The cost of a
key, until the next example is there, is measured afterwards.
"""

import argparse
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
import msgspec

from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from benchmarks import report

HELD, OTHERS, ROUNDS, KEYS = 10_000, 40_000, 9, 20
CHUNK = 2000
PICTURE_S = 0.5
PATIENCE_S = 20.0
CHILD = """\
import sys, time
begun = time.monotonic()
import argparse
from apollod.cli.control.examples.desk import Desk
from apollod.cli.control.examples.review import first_picture
loaded, spent = time.monotonic(), time.process_time()
with open(sys.argv[1], "w") as file:
    print(begun, loaded, spent, file=file)
desk = Desk(sys.argv[2], sys.argv[3])
with first_picture(desk, True):
    drawn = time.process_time()
    from apollod.cli.control.examples.screen import ReviewApp
with open(sys.argv[1], "a") as file:
    print(drawn, file=file)
ReviewApp(desk, True).run(mouse=False)
"""


def main() -> None:
    """Measure and print."""
    args = report.parser(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        _measure(Path(directory), args)


def _measure(root: Path, args: argparse.Namespace) -> None:
    journal = root / "journal.db"
    anyio.run(_fill, journal)
    rounds = [_round(root, journal) for _ in range(ROUNDS)]
    figures = {name: report.median([one[name] for one in rounds]) for name in rounds[0]}
    figures["held"] = HELD
    goals = {"picture_s": report.goal(figures["picture_s"], PICTURE_S, at_most=True)}
    report.report("review", figures, {}, goals, threads=1, as_json=args.json)


async def _fill(path: Path) -> None:
    journal = await Journal.open(path)
    source = ev.SourceDiscovered(source="src", path="/logs/session.jsonl")
    await journal.append([source], time.time_ns())
    for first in range(0, HELD + OTHERS, CHUNK):
        events: list[ev.Event] = []
        for n in range(first, first + CHUNK):
            events.append(_example(n))
            if n % ((HELD + OTHERS) // HELD) == 0:
                events.append(ev.ExampleHeld(example=_id(n), tier="bulk", reason="its source is reviewed"))
                events.append(_scored(n))
        await journal.append(events, time.time_ns())
    await journal.close()


def _id(n: int) -> str:
    return f"{n * 2654435761 % 2**32:08x}{n:024x}"


def _example(n: int) -> ev.ExampleAccepted:
    turns = [("user", f"question {n}: {'what keeps the light? ' * 20}"), ("assistant", f"{'Mara Quill. ' * 60}")]
    record = {"messages": [{"role": role, "content": text} for role, text in turns]}
    return ev.ExampleAccepted(example=_id(n), record=msgspec.Raw(msgspec.json.encode(record)), source="src", line=n)


def _scored(n: int) -> ev.ExampleScored:
    """The score of example `n`; the first ones diverge most, so that they are shown in this order."""
    divergence = 2.0 - n / (HELD + OTHERS)
    return ev.ExampleScored(
        example=_id(n), with_context=-0.5, without_context=-0.5 - divergence, divergence=divergence, tokens=60,
        weights_version=1,
    )  # fmt: skip


def _round(root: Path, journal: Path) -> dict[str, float]:
    stamps = root / "stamps"
    here, there = pty.openpty()
    size = {"LINES": "24", "COLUMNS": "80", "TERM": "xterm-256color"}
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(stamps), str(journal), str(root / "none.sock")],
        stdin=there, stdout=there, stderr=there, env=os.environ | size,
    )  # fmt: skip
    try:
        shown = _seen(here, _id(0)[:12])
        ready = _seen(here, f"1 of {HELD}")
        begun, loaded, spent, drawn = map(float, stamps.read_text().split())
        pressed = time.monotonic()
        step = (HELD + OTHERS) // HELD
        for n in range(1, KEYS + 1):
            os.write(here, b"s")
            _seen(here, _id(n * step)[:12])
        keys = (time.monotonic() - pressed) / KEYS
    finally:
        child.kill()
        child.wait()
        os.close(here)
        os.close(there)
    return {
        "interpreter_s": begun - started, "imports_s": loaded - begun, "own_s": shown - loaded,
        "own_cpu_s": drawn - spent,
        "picture_s": shown - started, "picture_cpu_s": drawn, "keys_s": ready - started, "key_s": keys,
    }  # fmt: skip


def _seen(terminal: int, text: str) -> float:
    """The time at which this text had arrived at the terminal."""
    told, until = b"", time.monotonic() + PATIENCE_S
    while text.encode() not in told:
        if time.monotonic() > until or not select.select([terminal], [], [], 1.0)[0]:
            if time.monotonic() > until:
                raise TimeoutError(f"{text} was not drawn in {PATIENCE_S:g} s: {told[-500:]!r}")
            continue
        told += os.read(terminal, 65536)
    return time.monotonic()


if __name__ == "__main__":
    main()
