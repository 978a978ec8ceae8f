"""`apollod ctl events`."""

import argparse
import difflib
import json
import time
from datetime import UTC, datetime
from typing import Any

from apollod.adapters.journal import journal_reader
from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.core.events import KINDS
from apollod.core.schedules import SECOND_NS
from apollod.errors import ConfigError

PAGE = 1000
FOLLOW_S = 0.3
SHOWN_MAX = 160  # characters of a body on one line


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument(
        "--after", type=commands.event, default=None, metavar="SEQ", help="start after this sequence number"
    )
    parser.add_argument("--kind", default=None, help="only this kind, e.g. step.completed")
    parser.add_argument("--limit", type=commands.limit, default=20, help="the last N (default 20); 0 for all")
    parser.add_argument("--follow", action="store_true", help="go on as they come")
    ctl.jsonl(parser)
    ctl.of_a_copy(parser)


def _run(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
    if args.kind and args.kind not in KINDS and "*" not in args.kind:
        near = difflib.get_close_matches(args.kind, KINDS, n=1, cutoff=0.0)[0]
        raise ConfigError(f"no event kind {args.kind!r}", f"did you mean {near!r}? a * stands for anything: step.*")
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
        print(json.dumps({"schema_version": 1, "events": shown}))
    return 0


def _nth_from_end(path: str, kind: str | None, count: int) -> int:
    """The sequence number after which the last `count` events of a kind lie."""
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
