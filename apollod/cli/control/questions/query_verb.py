"""`apollod ctl query`."""

import argparse
import csv
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from math import inf

from apollod.adapters.journal import journal_reader
from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.errors import ConfigError

GRACE_S = 0.5  # for a query to end by itself
_INFINITE = {inf: "Infinity", -inf: "-Infinity"}  # JSON has no such numbers, and null would be SQL's NULL


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument("sql", help="for example: SELECT step, loss FROM steps ORDER BY step DESC LIMIT 5")
    parser.add_argument("--csv", action="store_true", help="comma-separated values with a header")
    parser.add_argument("--limit", type=commands.limit, default=1000, help="rows at most (default 1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit (default 10)")
    ctl.of_a_copy(parser)


def _run(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
    if args.csv and args.json:
        raise ConfigError("--csv and --json are two forms of one answer", "give one of them")
    with _ended_after(args.seconds):
        answer = journal_reader.query(path, args.sql, args.limit, args.seconds, journal_reader.ANSWER_BYTES_MAX)
    if args.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    elif args.json:
        keys = _keys(answer.columns)
        rows = [dict(zip(keys, (_INFINITE.get(value, value) for value in row), strict=True)) for row in answer.rows]
        print(
            json.dumps(
                {"schema_version": 1, "columns": keys, "rows": rows, "truncated": answer.truncated}, allow_nan=False
            )
        )
    else:
        print(render.table(answer.columns, answer.rows))
    if answer.truncated:
        print(f"apollod: only the first {args.limit} rows; raise --limit", file=sys.stderr)
    return 0


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """The end of the process for a statement that SQLite does not end by itself: it is in one function, and nothing
    interrupts that."""

    def end() -> None:
        os.write(2, f"apollod: {journal_reader.too_slow(seconds).line()}\n".encode())
        os._exit(commands.FAILED)

    timer = threading.Timer(seconds + GRACE_S, end)
    timer.daemon = True
    if 0 < seconds < threading.TIMEOUT_MAX / 2:  # else it is refused, or nobody waits for it
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _keys(columns: list[str]) -> list[str]:
    """The columns as keys of one object: a name that comes again gets `:1`, `:2` and so on, as SQLite itself does in
    a subquery."""
    keys: dict[str, None] = {}
    for name in columns:
        again = (f"{name}:{number}" for number in count(1))
        keys[name if name not in keys else next(key for key in again if key not in keys)] = None
    return list(keys)
