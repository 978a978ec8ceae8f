"""`apollod ctl source list|test`: the files that examples come from."""

import argparse
from typing import get_args

from apollod.cli.control import ctl
from apollod.cli.control.questions import rows
from apollod.core.intake.events import StripLevel


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "the files that were read"
    listed, tested = ctl.actions(
        parser,
        ("list", "every file that was read: how far, and what became of its lines", _list),
        ("test", "what would be learned of a log or a directory of logs; needs no daemon, changes nothing", _test),
    )
    _trial_arguments(tested)
    ctl.jsonl(listed)
    ctl.of_a_copy(listed)


def _list(args: argparse.Namespace) -> int:
    found = rows.objects(ctl.journal_path(args), "SELECT * FROM sources ORDER BY seq")
    cells = [
        (rows.end_of(s["path"]), *(s[name] for name in ("offset", "line", "accepted", "duplicates", "rejected", "at")))
        for s in found
    ]
    rows.show_list(
        args, "sources", found, ["source", "bytes", "lines", "accepted", "duplicates", "rejected", "since"], cells
    )
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


def _test(args: argparse.Namespace) -> int:
    from apollod.cli.control.questions import source_trial  # reads logs, which takes time to import

    return source_trial.run(args)
