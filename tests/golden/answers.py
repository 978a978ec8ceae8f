"""What a journal says: everything that later code has to read in it as the code that wrote it did.

Answers only ever gain fields; `differences` therefore asks whether the old ones are still given.
"""

import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from apollod.adapters.journal.journal_reader import query, recorded
from apollod.cli.main import main
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.supervisor.status_view import status_view
from apollod.wire import status as st
from apollod.wire.status import Journal

PARTS = 8  # states are compared after each of as many parts of the journal, and after every result of a step
STEP_RESULTS = ("step.completed", "step.failed")


def answers(path: Path) -> dict[str, Any]:
    """All of them, as JSON values."""
    kinds = query(path, "SELECT kind, count(*) FROM events GROUP BY kind ORDER BY kind").rows
    steps = [
        step for (step,) in query(path, "SELECT DISTINCT key FROM events WHERE kind = 'step.started' ORDER BY seq").rows
    ]
    examples = [id_ for (id_,) in query(path, "SELECT id FROM examples ORDER BY seq").rows]
    ((seq, head),) = query(path, "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").rows
    return {
        "events": seq,
        "head": head,
        "kinds": dict(kinds),
        "states": states(path, seq),
        "views": views(path),
        "why": {what: why(path, what) for what in steps + examples},
    }


def states(path: Path, events: int) -> dict[str, Any]:
    """Event -> the state after it, as `status` shows it."""
    shown, state = {}, State()
    chosen = {events * part // PARTS for part in range(1, PARTS + 1)}
    for item, hash_ in recorded(path):
        fold(state, item)
        if item.seq in chosen or item.event.kind in STEP_RESULTS:
            journal = Journal(seq=item.seq, bytes=0, head_hash=hash_.hex())
            shown[str(item.seq)] = st.plain(status_view(state, item.at_ns, journal))
    return shown


def views(path: Path) -> dict[str, list[dict[str, Any]]]:
    """View -> its rows."""
    names = [name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name").rows]
    found = {}
    for name in names:
        answer = query(path, f'SELECT * FROM "{name}" ORDER BY seq', row_limit=10_000)
        found[name] = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    return found


def why(path: Path, what: str) -> dict[str, Any]:
    """`apollod ctl why`, of a step or an example."""
    out = StringIO()
    with redirect_stdout(out):
        assert main(["ctl", "why", what, "--json", "--file", str(path)]) == 0
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def differences(expected: Any, found: Any, where: str = "") -> Iterator[str]:
    """What is no longer said as it was; what is said in addition does not count."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key, value in expected.items():
            if key in found:
                yield from differences(value, found[key], f"{where}/{key}")
            else:
                yield f"{where}/{key} is missing"
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, (old, new) in enumerate(zip(expected, found, strict=True)):
            yield from differences(old, new, f"{where}/{number}")
    elif expected != found or type(expected) is not type(found):
        yield f"{where} was {expected!r}, is {found!r}"
