"""`apollod ctl example withdraw`: what waits is taken out of the queue."""

import argparse

from apollod.cli.control import ctl
from apollod.cli.control.questions import example_ids
from apollod.errors import ConfigError
from apollod.wire import control_messages as msg


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which examples."""
    parser.add_argument(
        "examples", nargs="*", metavar="EXAMPLE", help="ids, or their first 6 or more digits; all have to wait"
    )
    parser.add_argument(
        "--source", default="", help="all that wait of one source: a path, or ctl:PATH and the like for what was given"
    )


def run(args: argparse.Namespace) -> int:
    """Returns when it is recorded. What is being learned stays."""
    if bool(args.examples) == bool(args.source):
        raise ConfigError("which examples?", "give ids, or --source SOURCE for all that wait of one source")
    ids = [example_ids.meant(ctl.journal_path(args), example) for example in args.examples]
    answer = ctl.ask(ctl.socket_path(args), msg.WithdrawRequest(ids, args.source))
    ctl.show(
        args, answer, f"{len(answer['examples'])} examples no longer wait; `apollod ctl relearn ID...` asks for them"
    )
    return 0
