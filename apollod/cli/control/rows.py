"""Rows of the journal's views, and lists of them: a table, one object, one object a line."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from apollod.cli import render

if TYPE_CHECKING:
    from apollod.adapters.journal.journal_reader import Answer
    from apollod.core.events import Event
    from apollod.core.state import State

ROWS_MAX = (1 << 31) - 2
"""Most rows that a cursor can be asked for."""
SECONDS = 60.0
"""Time limit of a query that no person typed; a few million events are read in it."""
PATH_MAX = 40
"""Characters of a path in a table; its end names the file."""


def tuples(path: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a query of ours."""
    return _answer(path, sql).rows


def scalar(path: str, sql: str) -> Any:
    """First value of a query of ours; None: it has no row."""
    return next((row[0] for row in tuples(path, sql)), None)


def among(values: Iterable[str]) -> str:
    """A list of these for IN."""
    from apollod.adapters.journal.journal_reader import literal

    return f"({', '.join(map(literal, values))})"


def objects(path: str, sql: str) -> list[dict[str, Any]]:
    """Rows of a query of ours, each as column -> value."""
    answer = _answer(path, sql)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _answer(path: str, sql: str) -> "Answer":
    from apollod.adapters.journal import journal_reader  # loads all events: not where the daemon is asked

    return journal_reader.query(path, sql, row_limit=ROWS_MAX, seconds=SECONDS)


def events(path: str, where: str) -> Iterator[tuple[int, int, "Event"]]:
    """Decoded events of the journal in their order, each with its sequence number and time (Unix, ns)."""
    from apollod.adapters.journal import journal_reader
    from apollod.wire.event_codec import decode_event

    sql = f"SELECT seq, at_ns, kind, version, body FROM events WHERE {where} ORDER BY seq"
    for seq, at_ns, *event in journal_reader.stream(path, sql, SECONDS):
        yield seq, at_ns, decode_event(*event)


def view_over(path: str, view: str, where: str) -> str:
    """SQL of a view that begins with SELECT, over these events only: as it is, it puts all of them together first."""
    made = tuples(path, f"SELECT sql FROM sqlite_master WHERE type = 'view' AND name = '{view}'")[0][0]
    select = made.partition(" AS\n")[2]
    return f"WITH events AS NOT MATERIALIZED (SELECT * FROM main.events WHERE {where}) {select}"


def has(path: str, view: str) -> bool:
    """True if the journal has this view. One that an older apollod wrote last may not."""
    return bool(tuples(path, f"SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = '{view}'"))


def folded_state(path: str) -> "State":
    """State after all events of a journal, folded from its newest snapshot on, without its daemon."""
    from apollod.adapters.journal import journal_reader
    from apollod.core.fold import fold
    from apollod.core.state import State
    from apollod.wire.state_snapshot import fold_code, load_state

    snapshot = journal_reader.snapshot(path, fold_code())
    state = load_state(snapshot.state) if snapshot is not None else State()
    events = journal_reader.recorded(path, *((snapshot.seq, snapshot.hash) if snapshot is not None else ()))
    for item, _ in events:
        fold(state, item)
    return state


def folded_status(path: str) -> dict[str, Any]:
    """Status of now after all events of a journal, without its daemon, as JSON values."""
    from time import time_ns

    from apollod.supervisor.status_view import status_view
    from apollod.wire import status as st

    state = folded_state(path)
    return st.plain(status_view(state, time_ns(), st.Journal(seq=state.seq, bytes=0, head_hash="", path=path)))


def show_list(
    args: argparse.Namespace,
    name: str,
    found: Sequence[Mapping[str, Any]],
    columns: Sequence[render.Column],
    beside: Mapping[str, Any] = {},
) -> int:
    """Print a list in the form that was asked for: lines (--jsonl), one object with the list as `name` and the fields
    `beside` it (--json), or a table. Returns exit code 0."""
    if not args.jsonl:
        return render.show(args, {name: found, **beside}, lambda: render.listed(columns, found))
    for row in found:
        print(json.dumps(row))
    return 0


def end_of(path: str) -> str:
    """The end of a path, for a table."""
    return path if len(path) <= PATH_MAX else f"...{path[3 - PATH_MAX :]}"
