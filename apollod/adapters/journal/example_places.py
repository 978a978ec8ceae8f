"""Looks up the state of given examples, and who decided it."""

import json
from collections.abc import Sequence
from pathlib import Path

from apollod.adapters.journal.journal_reader import query


def states_of(path: Path, examples: Sequence[str]) -> dict[str, str]:
    """States (`core.example_state`) by id, of those that were accepted. Raises JournalError."""
    sql = f"SELECT id, state FROM examples WHERE id IN ({listed(examples)})"
    return {str(id_): str(state) for id_, state in query(path, sql, row_limit=len(examples) + 1).rows}


def deciders_of(path: Path, examples: Sequence[str]) -> dict[str, str]:
    """Who decided last, by id, of those about which somebody did. Raises JournalError."""
    sql = f"SELECT example, max(seq), by FROM reviews WHERE example IN ({listed(examples)}) GROUP BY example"
    found = query(path, sql, row_limit=len(examples) + 1).rows
    return {str(id_): str(by) for id_, _, by in found if by}


def listed(examples: Sequence[str]) -> str:
    """SQL that selects these ids."""
    ids = json.dumps(list(examples)).replace("'", "''")
    return f"SELECT value FROM json_each('{ids}')"
