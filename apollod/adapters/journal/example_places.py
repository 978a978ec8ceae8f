"""What became of given examples."""

import json
from collections.abc import Sequence
from pathlib import Path

from apollod.adapters.journal.journal_reader import query


def states_of(path: Path, examples: Sequence[str]) -> dict[str, str]:
    """States (`core.example_state`) by id, of those that were accepted. Raises JournalError."""
    listed = json.dumps(list(examples)).replace("'", "''")
    sql = f"SELECT id, state FROM examples WHERE id IN (SELECT value FROM json_each('{listed}'))"
    return {str(id_): str(state) for id_, state in query(path, sql, row_limit=len(examples) + 1).rows}
