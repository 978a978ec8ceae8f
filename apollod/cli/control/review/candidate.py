"""An example as it is laid before a person who has to decide about it, with all that speaks for and against it.

Facts about examples are read as they stand, whoever recorded them: a part of the page is shown where there are facts
for it, and left out where there are none.
"""

import json
from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

from apollod.adapters.journal import journal_reader
from apollod.cli.control.questions import rows
from apollod.cli.control.review.held_queue import Waits
from apollod.errors import ApolloError

Body = dict[str, Any]
_KINDS = {"signal.flagged": "signals", "verdict.given": "verdicts", "example.scored": "scores"}


class Facts(NamedTuple):
    """The events about an example, each as its body, the oldest first."""

    signals: tuple[Body, ...] = ()
    verdicts: tuple[Body, ...] = ()
    scores: tuple[Body, ...] = ()

    @property
    def score(self) -> Body:
        """The newest divergence; empty where nobody measured it."""
        return self.scores[-1] if self.scores else {}


class Candidate(NamedTuple):
    """A held example. `path`: the file it came from, or who gave it; `removed`: what was stripped (`Removed`)."""

    id: str
    waits: Waits
    path: str
    line: int
    record: Body
    removed: list[Body]
    facts: Facts


def candidate(path: str, id_: str, waits: Waits) -> Candidate:
    """All of it, from the journal. Raises JournalError, and ApolloError where the journal does not have it."""
    accepted = f"SELECT seq, body FROM events WHERE kind = 'example.accepted' AND key = '{id_}' AND seq"
    found = rows.tuples(path, f"{accepted} = {waits.seq - 1}")  # where it was held as it came, which is quick to ask
    found = found or rows.tuples(path, f"{accepted} IN (SELECT seq FROM known_examples WHERE id = '{id_}')")
    if not found:
        raise ApolloError(f"the journal does not say what the example {id_} is", "`apollod ctl why` tells more")
    body: Body = journal_reader.decode_body(path, *found[0])
    quoted = journal_reader.literal(body["source"])
    files = rows.tuples(
        path, f"SELECT body ->> '$.path' FROM events WHERE kind = 'source.discovered' AND key = {quoted}"
    )
    where = files[-1][0] if files else body["source"]
    facts = facts_of(path, [id_])[id_]
    return Candidate(id_, waits, where, body["line"], body["record"], body.get("removed", []), facts)


def facts_of(path: str, examples: Collection[str]) -> dict[str, Facts]:
    """What was recorded about each of these. Raises JournalError."""
    kinds = ", ".join(f"'{kind}'" for kind in _KINDS)
    names = f" AND instr(body, '{next(iter(examples))}')" if len(examples) == 1 else ""  # without a look into the JSON
    found: dict[str, dict[str, list[Body]]] = {id_: defaultdict(list) for id_ in examples}
    sql = f"SELECT seq, kind, body FROM events WHERE kind IN ({kinds}){names} ORDER BY seq"
    for seq, kind, text in rows.tuples(path, sql):
        body = journal_reader.decode_body(path, seq, text)
        if body.get("example") in found:
            found[body["example"]][_KINDS[kind]].append(body)
    return {id_: Facts(**{name: tuple(bodies) for name, bodies in of_it.items()}) for id_, of_it in found.items()}


def found_by(path: str, text: str, examples: Collection[str]) -> frozenset[str]:
    """Those whose text, id or source has this in it, whatever the case. Reads all of them: seconds for very many.
    Raises JournalError."""
    wanted, among = text.casefold(), json.dumps(list(examples))
    sql = f"""
        SELECT id, body -> '$.record', body ->> '$.source' FROM known_examples JOIN events USING (seq)
        WHERE kind = 'example.accepted' AND id IN (SELECT value FROM json_each('{among}'))
    """
    files = dict(rows.tuples(path, "SELECT key, body ->> '$.path' FROM events WHERE kind = 'source.discovered'"))
    return frozenset(
        id_
        for id_, record, source in rows.tuples(path, sql)
        if wanted in id_ or wanted in files.get(source, source).casefold() or _says(json.loads(record), wanted)
    )


def _says(value: Any, wanted: str) -> bool:
    """True if a text anywhere in a JSON value contains this."""
    if isinstance(value, str):
        return wanted in value.casefold()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_says(one, wanted) for one in inner)
