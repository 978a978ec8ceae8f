"""OpenClaw since 2026.8: `~/.openclaw/agents/<agent>/agent/openclaw-agent.sqlite`.

`transcript_events` has the lines of earlier session files, one a row, by session and `seq`; `session_windows` has a row
for each session. After openclaw's `session-accessor.sqlite-*.ts` and docs/registry/openclaw.md of vshulcz/deja-vu. A
transcript may be rewritten as a whole, with `seq` from 0 again.
"""

from collections.abc import Iterable, Sequence

import msgspec

from apollod.curation.conversation import Entry, Session
from apollod.curation.databases.database_reader import Heard, Queries, Row, Schema, attempt, capped, size_of
from apollod.curation.formats import pi
from apollod.errors import RecordRefused

NAME = "openclaw"


class OpenClaw:
    """Lines of pi's log format, stored as rows."""

    name = NAME
    keys_return = True

    def queries(self, schema: Schema) -> Queries | None:
        if not {"session_id", "seq", "event_json"} <= schema.get("transcript_events", frozenset()):
            return None
        windows = schema.get("session_windows", frozenset())
        known = [column for column in ("session_key", "created_at") if column in windows and "session_id" in windows]
        return Queries(
            sessions=(
                f"SELECT g.session_id, {'w.created_at' if 'created_at' in known else 'NULL'}, g.n || ' ' || g.last FROM"
                " (SELECT session_id, count(*) AS n, max(seq) AS last FROM transcript_events GROUP BY session_id) g"
                + (" LEFT JOIN session_windows w ON w.session_id = g.session_id" if known else "")
            ),
            facts=(
                "SELECT session_id AS id, session_key FROM session_windows WHERE session_id = :session"
                if "session_key" in known
                else "SELECT :session AS id"
            ),
            records=(
                f"SELECT e.seq AS key, {size_of(['event_json'], 'e')} AS size, {capped(['event_json'], 'e')}"
                " FROM transcript_events e WHERE e.session_id = :session AND (:after IS NULL OR e.seq > :after)"
                " ORDER BY e.seq"
            ),
            before=(
                f"SELECT e.seq, {size_of(['event_json'], 'e')} FROM transcript_events e"
                " WHERE e.session_id = :session AND e.seq <= :until ORDER BY e.seq DESC"
            ),
            counted="SELECT count(*) FROM transcript_events WHERE session_id = :session AND seq <= :until",
        )

    def session(self, facts: Row) -> Session:
        sidechain = ":subagent:" in str(facts.get("session_key") or "")
        return Session(id=str(facts.get("id") or ""), agent=NAME, sidechain=sidechain)

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        return [attempt(_entries, rows) for rows in records]


def _entries(rows: Sequence[Row]) -> Iterable[Entry]:
    line = rows[0].get("event_json")
    if not isinstance(line, str):
        raise RecordRefused("event_json is no text", "nothing to do; it is kept as it is")
    for entry in pi.hear(line.encode()):
        if isinstance(entry, Session):  # its id is that of the line, which a fork copies
            yield msgspec.structs.replace(entry, id="", agent="", begins=False)
        else:
            yield entry


READER = OpenClaw()
