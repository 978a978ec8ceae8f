"""Rows of the journal's views, and their forms: a table, one object, one object a line."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from apollod.cli import render

if TYPE_CHECKING:
    from apollod.adapters.journal.journal_reader import Answer

ROWS_MAX = (1 << 31) - 2
"""what a cursor can be asked for"""
SECONDS = 60.0
"""for a question that no person typed; a few million events are read in this"""
PATH_MAX = 40
"""characters of a path in a table; its end names the file"""


def tuples(path: str, sql: str) -> list[tuple[Any, ...]]:
    """The answer to a question of ours."""
    return _answer(path, sql).rows


def objects(path: str, sql: str) -> list[dict[str, Any]]:
    """The same, each row as column -> value."""
    answer = _answer(path, sql)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _answer(path: str, sql: str) -> "Answer":
    from apollod.adapters.journal import journal_reader  # loads all events: not where the daemon is asked

    return journal_reader.query(path, sql, row_limit=ROWS_MAX, seconds=SECONDS)


def has(path: str, view: str) -> bool:
    """True if the journal has this view. One that an older apollod wrote last may not."""
    return bool(tuples(path, f"SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = '{view}'"))


def show_list(
    args: argparse.Namespace,
    name: str,
    found: Sequence[dict[str, Any]],
    columns: Sequence[str],
    cells: Sequence[tuple[Any, ...]],
    beside: Mapping[str, Any] = {},
) -> None:
    """Print what was found in the form that was asked for. `name`: of the list in the one object, which says also what
    is `beside` it; `columns` and `cells`: the table for people."""
    if args.jsonl:
        for row in found:
            print(json.dumps(row))
    elif args.json:
        print(json.dumps({"schema_version": 1, name: found, **beside}))
    else:
        print(render.table(columns, cells))


def end_of(path: str) -> str:
    """The end of a path, for a table."""
    return path if len(path) <= PATH_MAX else f"...{path[3 - PATH_MAX :]}"
