"""`apollod ctl submit`."""

import argparse
import os
import sys
from pathlib import Path

from apollod.cli.commands import REFUSED_BY_GUARD
from apollod.cli.control import ctl
from apollod.cli.control.giving import give


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument("file", help="JSONL file, or - for standard input; for a single example see `train`")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="return when they are learned; exit 5 if the quality guard took some back and holds them",
    )


def _run(args: argparse.Namespace) -> int:
    """Exit code 1 if every line was rejected, 5 if an alarm took some back and holds them."""
    # The name of a file need not be UTF-8, what is sent has to be.
    path = os.fsencode(Path(args.file).absolute()).decode("utf-8", "backslashreplace")
    source = "ctl:-" if args.file == "-" else f"ctl:{path}"
    with sys.stdin.buffer if args.file == "-" else open(args.file, "rb") as stream:
        total = give(ctl.socket_path(args), stream, source, args.file, args.wait)
    accepted, duplicates, rejected = (len(total[name]) for name in ("examples", "duplicates", "rejected"))
    ctl.show(args, total, f"{accepted} accepted, {duplicates} duplicates, {rejected} rejected")
    if total.get("taken_back"):
        return REFUSED_BY_GUARD
    return 1 if rejected and not accepted and not duplicates else 0
