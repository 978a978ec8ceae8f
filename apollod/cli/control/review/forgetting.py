"""`apollod ctl example forget`: remove learned examples from the weights."""

import argparse

from apollod.cli.control import ctl
from apollod.cli.control.questions import example_ids
from apollod.wire import control_messages as msg


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: example ids and a reason."""
    parser.add_argument("examples", nargs="+", metavar="EXAMPLE", help="ids, or their first 6 or more digits")
    parser.add_argument("--reason", default="", help="kept in the journal")


def run(args: argparse.Namespace) -> int:
    """Send the request; returns once it is recorded. `ctl why ID` shows when it is done."""
    ids = [example_ids.meant(ctl.journal_path(args), example) for example in args.examples]
    answer = ctl.ask(ctl.socket_path(args), msg.ForgetRequest(ids, args.reason))
    others = "".join(f"; {one['example']}: {one['why']}" for one in answer["refused"])
    ctl.show(args, answer, f"{len(answer['examples'])} examples are forgotten before the next step{others}")
    return 1 if answer["refused"] else 0
