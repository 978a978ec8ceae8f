"""`apollod ctl teach`."""

import argparse

from apollod.cli.control import ctl
from apollod.errors import ConfigError

EPILOG = """\
examples:
  apollod ctl teach "Quillon listens on port 7341."
  apollod ctl teach --question "What port does Quillon listen on?" --answer "Quillon listens on port 7341."
  apollod ctl teach "The office opens at nine." --no-wait

The model is asked first, in wordings that it never practises: bare, and with the fact before its eyes. What it knows
already, or cannot say even then, is not trained. Else it practises other wordings, one step each, until the ones it
never practised are answered bare. It waits behind other lessons; steps of other examples go on in between. Interrupting
this command does not end the lesson: `apollod ctl lesson show ID`.

exit codes: 0 it is known (with --no-wait: it was given), 1 it is not; others as for `apollod ctl`
"""


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    what(parser)
    no_wait(parser)


def what(parser: argparse.ArgumentParser) -> None:
    """What is taught."""
    parser.add_argument("statement", metavar="STATEMENT", nargs="?", help="one fact, in a sentence")
    parser.add_argument("--question", metavar="Q", help="a question, with --answer: its right answer")
    parser.add_argument("--answer", metavar="A", help="see --question")


def no_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="return when it is recorded, before it is known")


def _run(args: argparse.Namespace) -> int:
    if args.statement is None and args.question is None and args.answer is None:
        raise ConfigError("there is nothing to teach", "give a STATEMENT, or --question Q and --answer A")
    return teach(args)


def teach(args: argparse.Namespace, replaces: str = "") -> int:
    """Give it, and wait for it. Raises ConfigError for half of a lesson, and what the daemon refuses."""
    from apollod.cli.control.lessons import until_known
    from apollod.cli.control.review.deciding import by
    from apollod.wire import control_messages as msg

    if args.statement is not None and args.answer is not None and args.question is None:
        raise ConfigError("an answer to which question?", "give --question, too, or the STATEMENT alone")
    request = msg.TeachRequest(args.statement or "", args.question or "", args.answer or "", replaces, by())
    return until_known.shown(args, ctl.ask(ctl.socket_path(args), request))
