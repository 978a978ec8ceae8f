"""Describes the examples that an alarm blames: file and line, what they teach, and their state."""

import json
from collections.abc import Collection
from typing import Any

from apollod.adapters.journal.journal_reader import literal
from apollod.cli.control.questions import rows
from apollod.cli.control.questions.example_text import parts
from apollod.core.quality.state import GUARD

Object = dict[str, Any]
WORDS_MAX = 80
"""characters of what one teaches"""
UNKNOWN: Object = {"source": None, "path": None, "line": None, "state": None, "text": None}


def culprit_lines(path: str, examples: Collection[str]) -> dict[str, Object]:
    """By id, of these examples alone: `example`, `source`, `path`, `line`, `state` (as in the view `examples`) and the
    first words of what is learned of it, not made harmless. All null of one that is not in the journal."""
    found = {one: {"example": one, **UNKNOWN} for one in examples}
    if not found:
        return found
    ids = ", ".join(literal(one) for one in found)
    known = rows.objects(
        path,
        "SELECT e.id AS example, e.source, coalesce(s.path, e.source) AS path, e.line, e.state, e.record AS text "
        "FROM examples AS e "
        "LEFT JOIN (SELECT source, path FROM sources GROUP BY source) AS s ON s.source = e.source "
        f"WHERE e.id IN ({ids})",
    )
    return found | {one["example"]: one | {"text": taught(one["text"])} for one in known}


def taught(record: str) -> str | None:
    """The first words of what is learned of a record, on one line; None of one that this apollod cannot read."""
    try:
        targets = [part.text for part in parts(json.loads(record)) if part.target]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    text = " ".join(" ".join(one[: 4 * WORDS_MAX] for one in targets).split())
    return text if len(text) <= WORDS_MAX else text[: WORDS_MAX - 3] + "..."


def held_by_guard(path: str, examples: Collection[str]) -> list[str]:
    """Those that an alarm took back and that nobody has decided about since, in the order in which they were held."""
    held = rows.tuples(
        path,
        "SELECT CAST(key AS TEXT) FROM events WHERE kind = 'example.held' "
        f"AND body ->> '$.by' = '{GUARD}' GROUP BY key ORDER BY max(seq)",
    )
    among = set(examples)
    own = [one for (one,) in held if one in among]
    states = culprit_lines(path, own)
    return [one for one in own if states[one]["state"] == "held"]
