"""`apollod ctl source list`: the files that examples come from."""

import argparse

from apollod.cli.control import ctl
from apollod.cli.control.questions import rows


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "the files that were read"
    (listed,) = ctl.actions(
        parser, ("list", "every file seen in the inbox: how far it is read, and what became of its lines", _list)
    )
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
