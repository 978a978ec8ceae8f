"""`apollod ctl relearn`."""

import argparse

from apollod.cli.control import ctl
from apollod.wire import control_messages as msg


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument(
        "examples", nargs="+", metavar="EXAMPLE", help="ids; `ctl example list --state undone|withdrawn` has them"
    )


def _run(args: argparse.Namespace) -> int:
    answer = ctl.ask(ctl.socket_path(args), msg.RelearnRequest(args.examples))
    ctl.show(args, answer, f"{len(answer['examples'])} examples wait to be learned again")
    return 0
