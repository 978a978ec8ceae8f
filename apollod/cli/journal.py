"""`apollod ctl events|query|replay|why|journal`: read the journal file itself, beside the daemon or without one."""

import argparse
import csv
import difflib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count, islice
from math import inf
from typing import Any

from apollod.adapters import journal_check, journal_reader
from apollod.cli import exits, moment, render
from apollod.core.events import KINDS
from apollod.core.fold import fold
from apollod.core.state import SECOND_NS, State
from apollod.errors import ApolloError, ConfigError
from apollod.supervisor.view import status_view
from apollod.wire.journal import GENESIS

PAGE = 1000
FOLLOW_S = 0.3
SHOWN_MAX = 160  # characters of a body on one line
HASH_DIGITS, HASH_DIGITS_MIN = 64, 16
SEARCH_S = 600.0
GRACE_S = 0.5  # for a query to end by itself
_INFINITE = {inf: "Infinity", -inf: "-Infinity"}  # JSON has no such numbers, and null would be SQL's NULL


def run(args: argparse.Namespace, path: str) -> int:
    """Run one verb on the journal at `path`."""
    match args.verb:
        case "events":
            return _events(args, path)
        case "query":
            return _query(args, path)
        case "replay":
            return _replay(args, path)
        case "why":
            from apollod.cli import why

            return why.run(args, path)
    return _verify(args, path)


def _events(args: argparse.Namespace, path: str) -> int:
    if args.kind and args.kind not in KINDS and "*" not in args.kind:
        near = difflib.get_close_matches(args.kind, KINDS, n=1, cutoff=0.0)[0]
        raise ConfigError(f"no event kind {args.kind!r}", f"did you mean {near!r}? a * stands for anything: step.*")
    if args.follow and args.json:
        raise ConfigError("--json is one object, and with --follow there is no end of it", "use --jsonl: one object a line, as they come")
    after = args.after if args.after is not None else _nth_from_end(path, args.kind, args.limit)
    shown: list[dict[str, Any]] = []
    left = args.limit if args.after is not None and args.limit else None
    while True:
        page = journal_reader.events(path, after, args.kind, min(PAGE, left) if left else PAGE)
        if args.json:
            shown += page
        else:
            for event in page:
                print(json.dumps(event) if args.jsonl else _line(event), flush=True)
        after = page[-1]["seq"] if page else after
        left = left - len(page) if left is not None else None
        if left == 0 or (len(page) < PAGE and not args.follow):
            break
        if not page:
            time.sleep(FOLLOW_S)
    if args.json:
        print(json.dumps({"schema_version": 1, "events": shown}))
    return 0


def _nth_from_end(path: str, kind: str | None, count: int) -> int:
    """The sequence number after which the last `count` events of a kind lie."""
    if not count:
        return 0
    pattern = (kind or "*").replace("'", "''")
    sql = f"SELECT min(seq) - 1 FROM (SELECT seq FROM events WHERE kind GLOB '{pattern}' ORDER BY seq DESC LIMIT {int(count)})"
    rows = journal_reader.query(path, sql).rows
    return int(rows[0][0] or 0)


def _line(event: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(event["at_ns"] / SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%S")
    body = " ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in event["body"].items())
    body = body if len(body) <= SHOWN_MAX else body[: SHOWN_MAX - 3] + "..."
    return render.plain(f"{event['seq']:>7}  {at}  {event['kind']:<22} {' '.join(body.split())}")


def _query(args: argparse.Namespace, path: str) -> int:
    if args.csv and args.json:
        raise ConfigError("--csv and --json are two forms of one answer", "give one of them")
    with _ended_after(args.seconds):
        answer = journal_reader.query(path, args.sql, args.limit, args.seconds, journal_reader.ANSWER_BYTES_MAX)
    if args.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    elif args.json:
        keys = _keys(answer.columns)
        rows = [dict(zip(keys, (_INFINITE.get(value, value) for value in row), strict=True)) for row in answer.rows]
        print(json.dumps({"schema_version": 1, "columns": keys, "rows": rows, "truncated": answer.truncated}, allow_nan=False))
    else:
        print(render.table(answer.columns, answer.rows))
    if answer.truncated:
        print(f"apollod: only the first {args.limit} rows; raise --limit", file=sys.stderr)
    return 0


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """The end of the process for a statement that SQLite does not end by itself: it is in one function, and nothing interrupts that."""

    def end() -> None:
        os.write(2, f"apollod: {journal_reader.too_slow(seconds).line()}\n".encode())
        os._exit(exits.FAILED)

    timer = threading.Timer(seconds + GRACE_S, end)
    timer.daemon = True
    if 0 < seconds < threading.TIMEOUT_MAX / 2:  # else it is refused, or nobody waits for it
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _keys(columns: list[str]) -> list[str]:
    """The columns as keys of one object: a name that comes again gets `:1`, `:2` and so on, as SQLite itself does in a subquery."""
    keys: dict[str, None] = {}
    for name in columns:
        again = (f"{name}:{number}" for number in count(1))
        keys[name if name not in keys else next(key for key in again if key not in keys)] = None
    return list(keys)


def _replay(args: argparse.Namespace, path: str) -> int:
    """The state is a pure fold of the journal: fold it, chain checked, and show it."""
    until = args.to if args.at is None else moment.seq_of(path, args.at)
    state, head, at_ns = State(), GENESIS, 0
    for item, hash_ in islice(journal_reader.recorded(path), until):
        fold(state, item)
        head, at_ns = hash_, item.at_ns
    if until is not None and state.seq < until:
        raise ApolloError(f"the journal ends at event {state.seq}", f"--to may be at most {state.seq}")
    view = status_view(state, at_ns, {"seq": state.seq, "bytes": 0, "head_hash": head.hex(), "path": path})
    view["replayed"] = state.seq
    view["replayed_at"] = moment.iso(at_ns) if state.seq else None
    if args.json:
        print(json.dumps(view))
        return 0
    print(f"event       {state.seq}, of {moment.iso(at_ns)}" if state.seq else "event       0, before the first")
    print(render.status(view))
    return 0


def _verify(args: argparse.Namespace, path: str) -> int:
    """What it prints was walked along: a newest event that came meanwhile is not proclaimed."""
    expect = _pinned(args.expect)
    chain = journal_reader.proved(path)
    last, bad, head = chain.seq, chain.broken, chain.hash.hex() if chain.seq else ""
    found = _seq_of(path, expect, last) if expect else None
    derived = journal_check.damage(path) if bad is None else None  # of a broken journal the events come first
    ok = bad is None and derived is None and (not expect or found is not None)
    if args.json:
        answer: dict[str, Any] = {"schema_version": 1, "ok": ok, "first_bad": bad, "events": last, "head_hash": head}
        if expect:
            answer["expected"] = None if found is None else {"seq": found, "after": last - found}
        answer["derived"] = derived and derived.line()
        print(json.dumps(answer))
        return 0 if ok else 1
    if bad is not None:
        print(f"broken at event {bad}: it was edited, is missing or out of place")
    elif derived is not None:
        print(f"the events are good: {last}, head {head}\nwhat is derived from them is damaged: {derived.line()}")
    else:
        print(f"ok: {last} events, head {head}")
    if expect and found is None:
        print(f"not expected: {expect} is the hash of no event{'' if bad is None else f' before {bad}'}; this is another history")
    elif found is not None:
        after = f"event {found}, {last - found} {'' if bad is None else 'good '}events came after"
        print(f"as expected: {expect} is {'the head' if found == last and bad is None else after}")
    return 0 if ok else 1


def _pinned(text: str | None) -> str:
    """A hash to look for; `status` shows the first 16 digits of one, which are enough."""
    expect = (text or "").strip().lower()
    if text is not None and not re.fullmatch(rf"[0-9a-f]{{{HASH_DIGITS_MIN},{HASH_DIGITS}}}", expect):
        raise ConfigError(f"{text!r} is no hash of an event", f"give {HASH_DIGITS} hex digits, or at least the first {HASH_DIGITS_MIN}")
    return expect


def _seq_of(path: str, expect: str, last: int) -> int | None:
    """The event with this hash on the part of the chain that was walked along and is good."""
    sql = f"SELECT seq FROM events WHERE seq <= {last} AND substr(hex(hash), 1, {len(expect)}) = '{expect.upper()}' ORDER BY seq LIMIT 1"
    rows = journal_reader.query(path, sql, seconds=SEARCH_S).rows
    return int(rows[0][0]) if rows else None
