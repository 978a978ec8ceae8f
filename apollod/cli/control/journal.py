"""`apollod ctl journal verify|archive`, `events`, `query`, `replay`: the journal, and the status at a moment of it."""

import argparse
import csv
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from math import inf
from pathlib import Path
from typing import Any

from apollod.adapters.journal import journal_reader
from apollod.adapters.system.clock import EPOCH, iso
from apollod.cli import commands, render
from apollod.cli.control import ctl, rows, status_verb
from apollod.cli.control.examples.example_facts import unknown_step
from apollod.core.events import KINDS, JournalContinued
from apollod.core.schedules import SECOND_NS
from apollod.errors import ApolloError, ConfigError, nearest

HASH_DIGITS, HASH_DIGITS_MIN = 64, 16
SEARCH_S = 600.0
PAGE = 1000
FOLLOW_S = 0.3
SHOWN_MAX = 160  # characters of a body on one line
GRACE_S = 0.5  # for a query to end by itself
_INFINITE = {inf: "Infinity", -inf: "-Infinity"}  # JSON has no such numbers, and null would be SQL's NULL


def add(parser: argparse.ArgumentParser) -> None:
    ctl.actions(
        parser,
        ("verify", "check the hash chain over every event, what is derived from them, and the files that they name",
         _verify,
         ctl.argument("--archive", metavar="FILE",
                      help="fail unless the journal goes on where this one, its archive, ends"),
         ctl.argument("--expect", metavar="HASH",
                      help="fail unless this hash, noted earlier, is the head or an event before it"),
         ctl.of_a_copy),
        ("archive", "put the journal away as a proved copy, and begin another one at the newest checkpoint; the daemon "
         "has to be stopped", _archive,
         ctl.argument("copy", metavar="DEST",
                      help="a file to make, or a directory, such as one on another disk, to make it in")),
    )  # fmt: skip


def _verify(args: argparse.Namespace) -> int:
    """Check everything up to the newest event at the start; events that come meanwhile are not reported."""
    from apollod.adapters.journal import verification
    from apollod.adapters.journal.archive import misfit

    path, expect = ctl.journal_path(args), _pinned(args.expect)
    chain = journal_reader.proved(path)
    last, bad, head = chain.seq, chain.broken, chain.hash.hex() if chain.seq else ""
    found = _seq_of(path, expect, last) if expect else None
    derived = verification.derived_damage(path) if bad is None else None  # of a broken journal the events come first
    compared = verification.reference_damage(path) if bad is None and derived is None else None
    files = verification.file_damage(path) if bad is None and derived is None else None
    begun = journal_reader.continued(path) if chain.seq else None
    unfit = misfit(path, args.archive) if args.archive and bad is None else ""
    if begun is not None and expect and begun.head_hash.startswith(expect):
        found = 0
    damaged = bad is not None or derived or compared or files or unfit
    ok = not damaged and (not expect or found is not None)
    if args.json:
        answer: dict[str, Any] = {"ok": ok, "first_bad": bad, "events": last, "head_hash": head}
        if expect:
            answer["expected"] = None if found is None else {"seq": found, "after": last - found}
        answer["derived"] = derived and derived.line()
        answer["references"] = compared and compared.line()
        answer["files"] = files and files.line()
        if begun is not None:
            answer["archive"] = {"path": begun.archive, "events": begun.events, "head_hash": begun.head_hash}
        if args.archive:
            answer["misfit"] = unfit
        render.print_object(answer)
        return 0 if ok else 1
    if bad is not None:
        print(f"broken at event {bad}: it was edited, is missing or out of place")
    elif derived is not None:
        print(f"the events are good: {last}, head {head}\nwhat is derived from them is damaged: {derived.line()}")
    elif lost := compared or files:
        print(f"the events are good: {last}, head {head}\n{lost.line()}")
    else:
        print(f"ok: {last} events, head {head}")
    if begun is not None and bad is None:
        print(_begun(begun, args.archive, unfit))
    if expect and found is None:
        print(
            f"not expected: {expect} is the hash of no event{'' if bad is None else f' before {bad}'}; this is "
            f"another history{'' if begun is None else f', or it is in the archive {begun.archive}'}"
        )
    elif found == 0:
        print(f"as expected: {expect} is the head of the archive, {last} events came after")
    elif found is not None:
        after = f"event {found}, {last - found} {'' if bad is None else 'good '}events came after"
        print(f"as expected: {expect} is {'the head' if found == last and bad is None else after}")
    return 0 if ok else 1


def _begun(begun: JournalContinued, archive: str | None, unfit: str) -> str:
    """Beginning of the journal, and the fit of the archive that was given."""
    link = f"it begins at step {begun.step}, after {begun.events} events with head {begun.head_hash}"
    if archive is None:
        return f"{link}; --archive FILE checks that they are in {begun.archive}"
    return f"the archive {archive} does not fit: {unfit}" if unfit else f"{link}, which are in {archive}"


def _pinned(text: str | None) -> str:
    """The hash to look for; the first 16 digits, as `status` shows them, are enough. Raises ConfigError."""
    expect = (text or "").strip().lower()
    if text is not None and not re.fullmatch(rf"[0-9a-f]{{{HASH_DIGITS_MIN},{HASH_DIGITS}}}", expect):
        raise ConfigError(
            f"{text!r} is no hash of an event",
            f"give {HASH_DIGITS} hex digits, or at least the first {HASH_DIGITS_MIN}",
        )
    return expect


def _seq_of(path: str, expect: str, last: int) -> int | None:
    """The event with this hash in the part of the chain that is good."""
    sql = (
        f"SELECT seq FROM events WHERE seq <= {last} AND substr(hex(hash), 1, {len(expect)}) = '{expect.upper()}' "
        "ORDER BY seq LIMIT 1"
    )
    found = journal_reader.query(path, sql, seconds=SEARCH_S).rows
    return int(found[0][0]) if found else None


def _archive(args: argparse.Namespace) -> int:
    """Put the journal away and begin a short one; holds the daemon's lock, which the configuration names."""
    config = commands.configuration(args, "which state directory?")
    from apollod.adapters.journal.archive import archive  # here for start-up time, as all that follows
    from apollod.adapters.system.clock import now_ns
    from apollod.adapters.system.service import Lock

    lock = Lock(config.state_dir / "apollod.lock")
    try:
        done = archive(config.journal_path, Path(args.copy).expanduser(), now_ns())
    finally:
        lock.release()
    answer = {
        "archive": done.archive.path, "events": done.archive.events,
        "head_hash": done.archive.head_hash, "step": done.step, "carried": done.events, "known": done.known,
    }  # fmt: skip
    text = (
        f"archived: {done.archive.events} events, head {done.archive.head_hash}, in {done.archive.path}\n"
        f"the journal now begins at step {done.step} with {done.events} events; {done.known} examples are known from "
        "before"
    )
    return render.show(args, answer, text)


# --- events -------------------------------------------------------------------------------------------------------


def add_events(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _events)
    parser.add_argument(
        "--after", type=commands.event, default=None, metavar="SEQ", help="start after this sequence number"
    )
    parser.add_argument("--kind", default=None, help="only this kind, e.g. step.completed")
    parser.add_argument("--limit", type=commands.limit, default=20, help="the last N (default 20); 0 for all")
    parser.add_argument("--follow", action="store_true", help="go on as they come")
    ctl.jsonl(parser)
    ctl.of_a_copy(parser)


def _events(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
    if args.kind and args.kind not in KINDS and "*" not in args.kind:
        hint = f"did you mean {nearest(args.kind, KINDS)!r}? a * stands for anything: step.*"
        raise ConfigError(f"no event kind {args.kind!r}", hint)
    if args.follow and args.json:
        raise ConfigError(
            "--json is one object, and with --follow there is no end of it",
            "use --jsonl: one object a line, as they come",
        )
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
        render.print_object({"events": shown})
    return 0


def _nth_from_end(path: str, kind: str | None, count: int) -> int:
    """The sequence number before the last `count` events of a kind."""
    if not count:
        return 0
    pattern = journal_reader.literal(kind or "*")
    sql = (
        f"SELECT min(seq) - 1 FROM (SELECT seq FROM events WHERE kind GLOB {pattern} ORDER BY seq DESC LIMIT "
        f"{int(count)})"
    )
    ((after,),) = journal_reader.query(path, sql).rows
    return int(after or 0)


def _line(event: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(event["at_ns"] / SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%S")
    body = " ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in event["body"].items())
    body = body if len(body) <= SHOWN_MAX else body[: SHOWN_MAX - 3] + "..."
    return render.plain(f"{event['seq']:>7}  {at}  {event['kind']:<22} {' '.join(body.split())}")


# --- query --------------------------------------------------------------------------------------------------------


def add_query(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _query)
    parser.add_argument("sql", help="for example: SELECT step, loss FROM steps ORDER BY step DESC LIMIT 5")
    parser.add_argument("--csv", action="store_true", help="comma-separated values with a header")
    parser.add_argument("--limit", type=commands.limit, default=1000, help="rows at most (default 1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit (default 10)")
    ctl.of_a_copy(parser)


def _query(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
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
        render.print_object({"columns": keys, "rows": rows, "truncated": answer.truncated})
    else:
        print(render.table(answer.columns, answer.rows))
    if answer.truncated:
        render.say(f"only the first {args.limit} rows; raise --limit")
    return 0


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """End the process if SQLite does not end the statement in time: it is in one function then, which nothing
    interrupts."""

    def end() -> None:
        os.write(2, f"apollod: {journal_reader.too_slow(seconds).line()}\n".encode())
        os._exit(commands.FAILED)

    timer = threading.Timer(seconds + GRACE_S, end)
    timer.daemon = True
    if 0 < seconds < threading.TIMEOUT_MAX / 2:  # else it is refused, or nobody waits for it
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _keys(columns: list[str]) -> list[str]:
    """Columns as keys of one object: a repeated name gets `:1`, `:2` and so on, as SQLite does in a subquery."""
    keys: dict[str, None] = {}
    for name in columns:
        again = (f"{name}:{number}" for number in count(1))
        keys[name if name not in keys else next(key for key in again if key not in keys)] = None
    return list(keys)


# --- replay: the status at a moment -------------------------------------------------------------------------------

RESULTS = "kind IN ('step.completed', 'step.failed')"


def add_replay(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _replay)
    until = parser.add_mutually_exclusive_group()
    until.add_argument(
        "--to", type=commands.event, default=None, metavar="SEQ", help="up to this event (default: the last)"
    )
    until.add_argument(
        "--at", default=None, metavar="STEP|TIME",
        help="right after the result of a step (12), or up to the last event of a time (2026-11-20T12:00:00Z; "
        "without a zone: local time)",
    )  # fmt: skip
    ctl.of_a_copy(parser)


def _replay(args: argparse.Namespace) -> int:
    """The status at a moment of the past, which is a step or a time.

    The order of events is that of their sequence numbers; times are what a clock said, and a clock may be set back. A
    time therefore means the last event, in the order of the journal, that was recorded then or earlier: after a clock
    was set back, events before it may carry later times.
    """
    path = ctl.journal_path(args)
    until = args.to if args.at is None else _seq_at(path, args.at)
    seq, at_ns, status = status_at(path, until)
    if until is not None and seq < until:
        raise ApolloError(f"the journal ends at event {seq}", f"--to may be at most {seq}")
    head = f"event       {seq}, of {iso(at_ns)}" if seq else "event       0, before the first"
    answer = status | {"replayed": seq, "replayed_at": iso(at_ns) if seq else None}
    return render.show(args, answer, lambda: [head, status_verb.page(status)])


def status_at(path: str, until: int | None = None) -> tuple[int, int, dict[str, Any]]:
    """Event, time (Unix, ns) and status after the first `until` events of a journal (None: all), whose chain of hashes
    is checked. The state is a pure fold of them."""
    from apollod.core.fold import fold
    from apollod.core.state import State
    from apollod.supervisor.status_view import status_view
    from apollod.wire import status as st
    from apollod.wire.event_codec import GENESIS

    state, head, at_ns = State(), GENESIS, 0
    for item, hash_ in islice(journal_reader.recorded(path), until):
        fold(state, item)
        head, at_ns = hash_, item.at_ns
    status = status_view(state, at_ns, st.Journal(seq=state.seq, bytes=0, head_hash=head.hex(), path=path))
    return state.seq, at_ns, st.plain(status)


def _seq_at(path: str, text: str) -> int:
    """The event after which the moment is. Raises ConfigError for text that is neither a step nor a time, ApolloError
    for a moment outside the journal."""
    return _of_step(path, int(text)) if re.fullmatch(r"[0-9]{1,15}", text) else _of_time(path, text)


def _of_step(path: str, number: int) -> int:
    result = rows.scalar(path, f"SELECT max(seq) FROM events WHERE {RESULTS} AND key = '{number}'")
    if result is not None:
        return int(result)
    intent = rows.scalar(path, f"SELECT max(seq) FROM events WHERE kind = 'step.started' AND key = '{number}'")
    if intent is not None:
        raise ApolloError(
            f"step {number} has no result yet; it was begun in event {intent}", f"see the state then with --to {intent}"
        )
    raise unknown_step(path, number)


def _of_time(path: str, text: str) -> int:
    try:
        last_ns = _end_of(text)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{text!r} is neither a step nor a time",
            "give a step's number, or a time such as 2026-11-20T12:00:00Z (without Z: local time)",
        ) from error
    found = rows.scalar(path, f"SELECT max(seq) FROM events WHERE at_ns <= {last_ns}")
    carried = rows.scalar(path, "SELECT coalesce(max(seq), 0) FROM events WHERE kind = 'journal.carried'")
    if found is not None and (begun := journal_reader.continued(path)) is not None and found < carried:
        raise ApolloError(
            f"{iso(last_ns)} is before this journal, which begins at step {begun.step}",
            f"ask its archive: --file {begun.archive}",
        )
    if found is not None:
        return int(found)
    first = rows.scalar(path, "SELECT at_ns FROM events ORDER BY seq LIMIT 1")
    if first is None:
        raise ApolloError("the journal has no event", "start the daemon")
    raise ApolloError(f"no event is as old as {iso(last_ns)}; the first one is of {iso(first)}", "give a later time")


def _end_of(text: str) -> int:
    """The last nanosecond of the second (or tenth, millisecond ...) that is named, as views cut times off there."""
    at = datetime.fromisoformat(text).astimezone(UTC)
    digits = re.search(r"[.,]([0-9]{1,6})", text)
    unit: int = SECOND_NS // 10 ** (len(digits[1]) if digits else 0)
    return (at - EPOCH) // timedelta(microseconds=1) * 1000 + unit - 1
