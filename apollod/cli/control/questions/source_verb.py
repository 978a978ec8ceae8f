"""`apollod ctl source list|show|test|add|remove`: the files that examples come from."""

import argparse
import json
from typing import get_args

from apollod.cli import render
from apollod.cli.control import ctl, watch_tables
from apollod.cli.control.questions import rows, source_facts
from apollod.core.intake.events import StripLevel


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "the files that examples come from"
    listed, shown, tested, added, removed = ctl.actions(
        parser,
        ("list", "every file that was read: how far, and what became of its lines; and what cannot be read", _list),
        ("show", "a file, or all below a directory: how far it is read, what became of its records and why", _show),
        ("test", "what would be learned of a log or a directory of logs; needs no daemon, changes nothing", _test),
        ("add", "watch a directory of logs: a [[watch]] table in the configuration", watch_tables.add),
        ("remove", "watch a directory no longer", watch_tables.remove),
    )
    _trial_arguments(tested)
    watch_tables.add_arguments(added)
    watch_tables.remove_arguments(removed)
    shown.add_argument("path", metavar="PATH", help="a file, a directory, or a source as the journal calls it")
    ctl.jsonl(listed)
    ctl.of_a_copy(listed)
    ctl.of_a_copy(shown)


def _list(args: argparse.Namespace) -> int:
    journal = ctl.journal_path(args)
    found = rows.objects(journal, "SELECT * FROM sources ORDER BY seq")
    closed = source_facts.blocked(journal) if not args.jsonl else []
    cells = [
        (rows.end_of(s["path"]), *(s[name] for name in ("offset", "line", "accepted", "duplicates", "rejected", "at")))
        for s in found
    ]
    rows.show_list(
        args,
        "sources",
        found,
        ["source", "bytes", "lines", "accepted", "duplicates", "rejected", "since"],
        cells,
        {"blocked": closed},
    )
    if not args.json:
        print("\n".join(render.plain(source_facts.blocked_line(one)) for one in closed), end="\n" if closed else "")
    return 0


def _show(args: argparse.Namespace) -> int:
    told = source_facts.sources_of(ctl.journal_path(args), args.path)
    print(json.dumps({"schema_version": 1, **told}) if args.json else source_facts.text_of(told))
    return 0


def _trial_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="a log, or a directory of them")
    parser.add_argument("--format", default="auto", help="read as this format, whatever it looks like")
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="learn answers of this model (default apollo), * for everybody's; may be repeated",
    )
    parser.add_argument(
        "--strip", choices=get_args(StripLevel), default="memory", help="as in [[watch]] (default memory)"
    )
    parser.add_argument("--sidechains", action="store_true", help="learn also what agents did that another one started")
    parser.add_argument("--examples", type=int, default=3, metavar="N", help="show so many (default 3)")
    parser.add_argument(
        "--model-dir", metavar="DIR", help="try each answer with the tokenizer in this directory, as --config does"
    )


def _test(args: argparse.Namespace) -> int:
    from apollod.cli.control.questions import source_trial  # reads logs, which takes time to import

    return source_trial.run(args)
