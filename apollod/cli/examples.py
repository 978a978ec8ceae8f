"""`apollod ctl example list|show` and `source list`: what was given to learn, and from where, read from the journal file."""

import argparse
import json
import re
import sys
from textwrap import indent
from typing import Any

from apollod.adapters import journal_reader
from apollod.cli import render
from apollod.errors import ApolloError, ConfigError

PREFIX_MIN, ID_DIGITS = 6, 32
NAMED_MAX = 5  # examples named when a prefix is not unique
SECONDS = 60.0  # per question; a few million events are read in this
ROWS_MAX = (1 << 31) - 2  # what a cursor can be asked for
PATH_MAX = 40  # characters of a path in a table; its end names the file
_WHERE = "`apollod ctl example list` has them"
_EXAMPLES = """
    SELECT e.id, e.state, e.source, coalesce(s.path, e.source) AS path, e.line,
           coalesce(accepted.body ->> '$.tier', 'bulk') AS tier, -- the first journals have no such column
           e.tokens, e.targets, e.step, e.record, e.at, e.seq
    FROM examples AS e JOIN events AS accepted ON accepted.seq = e.seq
    LEFT JOIN (SELECT source, path FROM sources GROUP BY source) AS s ON s.source = e.source -- and may have one twice
"""


def run(args: argparse.Namespace, path: str) -> int:
    """Run one verb on the journal at `path`."""
    match args.verb, args.action:
        case "source", _:
            return _sources(args, path)
        case _, "list":
            return _list(args, path)
    return _show(args, path)


def state_of(path: str, id_: str) -> str:
    """What became of an example that was accepted."""
    (row,) = _rows(path, f"SELECT state FROM examples WHERE id = '{id_}'")
    return str(row["state"])


def _list(args: argparse.Namespace, path: str) -> int:
    """The newest ones, in the order of acceptance, which is that of learning."""
    state = f"WHERE e.state = '{args.state}'" if args.state else ""
    limit = min(args.limit or ROWS_MAX, ROWS_MAX)
    newest = _rows(path, f"{_EXAMPLES} {state} ORDER BY e.seq DESC LIMIT {limit + 1}")
    found = [_decoded(row) for row in reversed(newest[:limit])]
    cells = [(e["id"], e["state"], e["tier"], e["tokens"], e["step"], f"{_end(e['path'])}:{e['line']}", _gist(e["record"])) for e in found]
    _print(args, "examples", found, ["example", "state", "tier", "tokens", "step", "source", "text"], cells)
    if len(newest) > limit:
        print(f"apollod: only the newest {limit}; raise --limit, 0 for all", file=sys.stderr)
    return 0


def _sources(args: argparse.Namespace, path: str) -> int:
    found = _rows(path, "SELECT * FROM sources ORDER BY seq")
    cells = [(_end(s["path"]), s["offset"], s["line"], s["accepted"], s["duplicates"], s["rejected"], s["at"]) for s in found]
    _print(args, "sources", found, ["source", "bytes", "lines", "accepted", "duplicates", "rejected", "since"], cells)
    return 0


def _print(args: argparse.Namespace, name: str, found: list[dict[str, Any]], columns: list[str], cells: list[tuple[Any, ...]]) -> None:
    if args.jsonl:
        for row in found:
            print(json.dumps(row))
    elif args.json:
        print(json.dumps({"schema_version": 1, name: found}))
    else:
        print(render.table(columns, cells))


def _show(args: argparse.Namespace, path: str) -> int:
    id_ = _id_of(path, args.example)
    (found,) = [_decoded(row) for row in _rows(path, f"{_EXAMPLES} WHERE e.id = '{id_}'")]
    # A step over several examples names the first one, and all in a list.
    tried = _rows(path, f"""
        SELECT body ->> '$.step' AS step, coalesce(body ->> '$.reason', body ->> '$.note', '') AS reason FROM events
        WHERE kind IN ('step.completed', 'step.failed') AND seq > {found['seq']} AND (
            body ->> '$.example' = '{id_}' OR EXISTS (SELECT 1 FROM json_each(body, '$.examples') AS e WHERE e.value = '{id_}'))
        ORDER BY seq
    """)
    refused = _rows(path, f"SELECT body ->> '$.reason' AS reason FROM events WHERE kind = 'example.rejected' AND key = '{id_}'")
    said = {"rejected": refused, "held": tried, "skipped": tried}.get(found["state"], [])
    found |= {"steps": [row["step"] for row in tried], "reason": said[-1]["reason"] if said else ""}
    if args.json:
        print(json.dumps({"schema_version": 1, "example": found}))
    else:
        print(_text(found))
    return 0


def is_id(text: str) -> bool:
    """Could it be the id of an example, or the beginning of one?"""
    return re.fullmatch(rf"[0-9a-f]{{{PREFIX_MIN},{ID_DIGITS}}}", text) is not None


def known(path: str, prefix: str) -> str:
    """The one example whose id begins so, empty where none does; raises ApolloError where several do."""
    sql = f"SELECT id FROM known_examples WHERE id >= '{prefix}' AND id < '{prefix}g' ORDER BY id LIMIT {NAMED_MAX + 1}"
    ids = [row["id"] for row in _rows(path, sql)]
    if len(ids) > 1:
        more = " ..." if len(ids) > NAMED_MAX else ""
        raise ApolloError(f"several examples begin with {prefix}: {' '.join(ids[:NAMED_MAX])}{more}", "give more digits")
    return str(ids[0]) if ids else ""


def unknown(path: str, prefix: str) -> ApolloError:
    """What to say where none begins so."""
    ((count,),) = journal_reader.query(path, "SELECT count(*) FROM known_examples", seconds=SECONDS).rows
    among = f"the journal knows {count} examples" if count else "no example was accepted yet"
    return ApolloError(f"no example begins with {prefix}: {among}", _WHERE)


def _id_of(path: str, what: str) -> str:
    """The one example that begins so; raises ConfigError for what is no id, ApolloError for none or several."""
    text = what.lower()
    if not is_id(text):
        raise ConfigError(f"{what!r} is no example", f"give its id or at least {PREFIX_MIN} digits of it; {_WHERE}")
    if not (id_ := known(path, text)):
        raise unknown(path, text)
    return id_


def _rows(path: str, sql: str) -> list[dict[str, Any]]:
    answer = journal_reader.query(path, sql, ROWS_MAX, SECONDS)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "record": json.loads(row["record"])}


# --- for people ---------------------------------------------------------------------------------------------------


def _text(e: dict[str, Any]) -> str:
    became = e["state"] + (f" by step {e['step']}" if e["step"] is not None else "") + (f": {e['reason']}" if e["reason"] else "")
    lines = [
        f"example     {e['id']}",
        f"state       {became}",
        *([f"steps       {' '.join(map(str, e['steps']))}"] if len(e["steps"]) > 1 else []),
        f"source      {e['path']}:{e['line']}",
        f"tier        {e['tier']}",
        f"accepted    {e['at']} (event {e['seq']})",
        *([f"tokens      {e['tokens']}, {e['targets']} of them targets"] if e["tokens"] is not None else []),
    ]
    for heading, text in _parts(e["record"]):
        lines += ["", heading, indent(text, "    ")]
    return "\n".join(map(render.plain, lines))


def _parts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Everything that a record says, in the order in which the model is shown it; what is learned is called a target."""
    if "text" in record:
        return [("text, target", record["text"])]
    if "completion" in record:
        return [("prompt", record["prompt"]), ("completion, target", record["completion"])]
    tools = [("tools", json.dumps(record["tools"], ensure_ascii=False, indent=2))] if record.get("tools") else []
    return tools + [(_heading(turn), _said(turn)) for turn in record["messages"]]


def _gist(record: dict[str, Any]) -> str:
    return " | ".join(text for _, text in _parts({**record, "tools": []}))


def _heading(turn: dict[str, Any]) -> str:
    whose = " ".join(turn[name] for name in ("role", "name", "tool_call_id") if name in turn)
    return f"{whose}, target" if turn["role"] == "assistant" and turn.get("weight", 1) else whose


def _said(turn: dict[str, Any]) -> str:
    calls = [json.dumps(call, ensure_ascii=False) for call in turn.get("tool_calls", [])]
    thought = [f"<think>\n{turn['reasoning_content']}\n</think>"] if turn.get("reasoning_content") else []
    return "\n".join([*thought, *([turn["content"]] if turn["content"] else []), *calls])


def _end(path: str) -> str:
    return path if len(path) <= PATH_MAX else f"...{path[3 - PATH_MAX:]}"
