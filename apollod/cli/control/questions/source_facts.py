"""Reads from the journal how far the files below a path are read, and the states of their records."""

import os
from pathlib import Path
from typing import Any

from apollod.adapters.journal.journal_reader import literal
from apollod.cli import render
from apollod.cli.control.questions import rows
from apollod.errors import ApolloError

SOURCES_SHOWN = 20
REASONS_SHOWN = 20


_BLOCKED = """
    SELECT key AS path, body ->> '$.reason' AS reason, body ->> '$.hint' AS hint, body ->> '$.mode' AS mode,
           body ->> '$.place' AS place, strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS since
    FROM events WHERE kind = 'source.blocked' AND seq IN (
        SELECT max(seq) FROM events WHERE kind IN ('source.blocked', 'source.unblocked') GROUP BY key
    )"""


def blocked(journal: str, path: str = "") -> list[dict[str, Any]]:
    """What cannot be read now: all of it, or a path and what lies below it."""
    below = f"substr(path, 1, {len(path) + 1}) = {literal(path + '/')}"
    chosen = f"path = {literal(path)} OR {below}" if path else "1"
    return rows.objects(journal, f"SELECT * FROM ({_BLOCKED}) WHERE {chosen} ORDER BY path")


def blocked_line(one: dict[str, Any]) -> str:
    """For people."""
    return f"{one['path']} cannot be read: {one['reason']}; {one['hint']}"


def sources_of(journal: str, named: str) -> dict[str, Any]:
    """All about a source, by its id or path, or about all below a directory. Raises ApolloError where none is known."""
    path = os.path.abspath(Path(named).expanduser())
    below = f"substr(path, 1, {len(path) + 1}) = {literal(path + '/')}"
    chosen = f"source = {literal(named)} OR path = {literal(path)} OR {below}"
    found = rows.objects(journal, f"SELECT * FROM sources WHERE {chosen} ORDER BY seq")
    closed = blocked(journal, path)
    if not found and not closed:
        raise ApolloError(f"nothing was read of {named} yet", "`apollod ctl source list` has what was read")
    among = f"(SELECT source FROM sources WHERE {chosen})"
    accepted = f"SELECT key FROM events WHERE kind = 'example.accepted' AND body ->> '$.source' IN {among}"
    counts = _counted(
        journal,
        f"""
        SELECT c.key, sum(c.value) FROM events, json_each(events.body, '$.counts') AS c
        WHERE kind = 'source.consumed' AND events.key IN {among} GROUP BY 1 ORDER BY 2 DESC, 1
        """,
    )
    return {
        "path": path,
        "sources": [{**one, "bytes": _size(one["path"])} for one in found],
        "blocked": closed,
        "records": sum(one["line"] for one in found),
        "accepted": sum(one["accepted"] for one in found),
        "duplicates": sum(one["duplicates"] for one in found),
        "quarantined": sum(one["rejected"] for one in found),
        **{group: _group(counts, group) for group in ("dropped", "unknown", "redacted")},
        "quarantined_reasons": _counted(
            journal,
            f"""
            SELECT body ->> '$.reason', count(*) FROM events
            WHERE kind = 'source.quarantined' AND key IN {among} GROUP BY 1 ORDER BY 2 DESC, 1
            """,
        ),
        "states": _counted(
            journal, f"SELECT state, count(*) FROM examples WHERE source IN {among} GROUP BY 1 ORDER BY 1"
        ),
        "rejected_reasons": _counted(
            journal,
            f"""
            SELECT body ->> '$.reason', count(*) FROM events
            WHERE kind = 'example.rejected' AND key IN ({accepted}) GROUP BY 1 ORDER BY 2 DESC, 1
            """,
        ),
    }


def _counted(journal: str, sql: str) -> dict[str, int]:
    return {str(what): int(count) for what, count in rows.tuples(journal, sql)}


def _group(counts: dict[str, int], group: str) -> dict[str, int]:
    """Those of `group: NAME`, by name."""
    return {what.partition(": ")[2]: count for what, count in counts.items() if what.startswith(f"{group}: ")}


def _size(path: str) -> int | None:
    """Bytes of the file now; None: it is not there any more, or not on this machine."""
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def text_of(told: dict[str, Any]) -> str:
    """For people."""
    sources = told["sources"]
    lines = [f"path        {told['path']}"]
    for one in sources[:SOURCES_SHOWN]:
        lines.append(f"read        {_how_far(one)}, since {one['at']}   {one['source']}")
        if len(sources) > 1:
            lines[-1] += f"   {rows.end_of(one['path'])}"
    if len(sources) > SOURCES_SHOWN:
        lines.append(f"            and {len(sources) - SOURCES_SHOWN} more files; --json has all of them")
    lines += [
        f"blocked     {one['path']}: {one['reason']}; {one['hint']} (since {one['since']})" for one in told["blocked"]
    ]
    lines += [
        f"records     {told['records']}",
        f"accepted    {told['accepted']}" + _in_brackets(told["states"]),
        f"duplicates  {told['duplicates']}",
        f"quarantined {told['quarantined']}",
    ]
    for title in ("dropped", "unknown", "redacted", "quarantined_reasons", "rejected_reasons"):
        reasons = told[title]
        lines += [
            f"{count:>11} {title.partition('_')[0]}: {' '.join(what.split())}"
            for what, count in list(reasons.items())[:REASONS_SHOWN]
        ]
        if len(reasons) > REASONS_SHOWN:
            lines.append(f"            and {len(reasons) - REASONS_SHOWN} more; --json has all of them")
    return "\n".join(map(render.plain, lines))


def _how_far(one: dict[str, Any]) -> str:
    size, offset = one["bytes"], one["offset"]
    if size is None:
        return f"{offset} bytes, {one['line']} lines; the file is not there now"
    return f"{offset} of {size} bytes, {one['line']} lines"


def _in_brackets(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{count} {state}' for state, count in counts.items())})" if counts else ""
