"""`apollod ctl export`: examples of the journal as rows that other programs train with, one JSON object a line."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from apollod.adapters.journal import journal_reader
from apollod.cli import render
from apollod.cli.control import ctl
from apollod.core.events import ExampleAccepted
from apollod.core.example_state import STATES
from apollod.curation.exports import FORMS, Exported
from apollod.errors import ConfigError
from apollod.wire.event_codec import decode_event

PROGRESS_S = 2.0
EVERY = "all"
_EXAMPLES = """
    SELECT e.id, e.state, e.source, e.line, e.step, e.at, accepted.kind, accepted.version, accepted.body
    FROM (SELECT id, state, source, line, step, at, seq FROM examples WHERE {which}) AS e
    JOIN events AS accepted ON accepted.seq = e.seq ORDER BY e.seq
"""


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument("--format", required=True, choices=sorted(FORMS), help="what the lines are")
    parser.add_argument(
        "--state", action="append", choices=(*STATES, EVERY),
        help="only those in this state (default trained); repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--where", metavar="SQL", default="",
        help="and for which this holds, over the view `examples`: \"tier = 'direct'\"",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="instead of standard output; it appears when it is whole"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time limit until the first example, and between two (default 60)"
    )
    ctl.of_a_copy(parser)


def _run(args: argparse.Namespace) -> int:
    if args.json and not args.output:
        raise ConfigError("--json is one object, and the rows are many", "give -o FILE as well, or leave --json out")
    path = ctl.journal_path(args)
    which = _which(args.state or ["trained"], args.where)
    for part in (args.where, which) if args.where else ():  # one expression, said before a file is begun
        journal_reader.query(path, f"SELECT 1 FROM examples WHERE {part}\n LIMIT 0", seconds=args.seconds)
    notes = Counter[str]()
    with _output(args.output) as out:
        count = _write(_examples(path, which, args.seconds), args.format, out, notes)
    for note, times in sorted(notes.items()):
        render.say(f"{times} of them: {note}")
    if args.json:
        print(json.dumps({"schema_version": 1, "format": args.format, "examples": count, "notes": dict(notes)}))
    elif args.output or not count:
        render.say(f"{count} examples as {args.format}")
    return 0


def _which(states: list[str], where: str) -> str:
    """SQL over the view `examples`. The line end ends a comment in the given expression."""
    among = ", ".join(f"'{state}'" for state in dict.fromkeys(states))
    chosen = "1" if EVERY in states else f"state IN ({among})"
    return f"{chosen} AND ({where}\n)" if where else chosen


def _examples(path: str, which: str, seconds: float) -> Iterator[Exported]:
    """Read examples in the order of acceptance."""
    for id_, state, source, line, step, at, *event in journal_reader.stream(
        path, _EXAMPLES.format(which=which), seconds
    ):
        accepted = decode_event(*event)
        assert isinstance(accepted, ExampleAccepted), id_
        facts = {"example": id_, "state": state, "source": source, "line": line, "step": step, "at": at}
        yield Exported(id_, json.loads(bytes(accepted.record)), accepted.origin, facts)


def _write(examples: Iterator[Exported], form: str, out: TextIO, notes: "Counter[str]") -> int:
    """Write a line for each example; returns their number."""
    to_row, count, told = FORMS[form], 0, time.monotonic()
    for example in examples:
        row = to_row(example)
        if row.note:
            notes[row.note] += 1
        if row.value is None:
            continue
        out.write(json.dumps(row.value, ensure_ascii=False, separators=(",", ":")) + "\n")
        count += 1
        if time.monotonic() > told + PROGRESS_S:
            told = time.monotonic()
            render.say(f"{count} examples so far")
    out.flush()
    return count


@contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that replaces an older one once it is whole."""
    if path is None:
        yield sys.stdout
        return
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "x", encoding="utf-8", newline="\n") as file:
            yield file
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
