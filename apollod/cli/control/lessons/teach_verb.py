"""`apollod ctl teach`."""

import argparse

from apollod.cli.control import ctl
from apollod.errors import ConfigError

EPILOG = """\
examples:
  apollod ctl teach "Quillon listens on port 7341."
  apollod ctl teach --question "What port does Quillon listen on?" --answer "Quillon listens on port 7341."
  apollod ctl teach "The office opens at nine." --no-wait
  apollod ctl teach --file NOTES.md                     each thing that a document says, a lesson each
  apollod ctl teach --file NOTES.md --questions QA.jsonl
  apollod ctl teach --instruction "Answer in one sentence." --check-regex '^[^.!?]+[.!?]?$'

The model is asked first, in wordings that it never practises: bare, and with the fact before its eyes. What it knows
already, or cannot say even then, is not trained. Else it practises other wordings, one step each, until the ones it
never practised are answered bare. It waits behind other lessons; steps of other examples go on in between. Interrupting
this command does not end the lesson: `apollod ctl lesson show ID`.

A document (.md, .txt, .rst) is taught as a group of lessons, each told with the section that it comes from. Questions
are imagined where [dream] names an endpoint, and made by rules else; sentences that say nothing that can be asked for
are counted. Taught again after an edit, what is the same is not taught again, and what changed is replaced. `apollod
ctl lesson list --document NOTES.md` and `lesson forget --document NOTES.md` are for all of it.

An instruction is taught as a behaviour: the model imagines situations, answers them with the instruction, and practises
the answers without it, until situations that it never practised are answered so untold. It is a pattern like those of
`apollod ctl pattern`, which has more to choose, and its name is the lesson's id. Without a check a judge decides.

exit codes: 0 it is known (of a document: at least 80 % of its facts; with --no-wait: it was given), 1 it is not; others
as for `apollod ctl`
"""


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    what(parser)
    parser.add_argument("--file", dest="document", metavar="FILE", help="a document of text or Markdown")
    parser.add_argument(
        "--questions", metavar="FILE",
        help='with --file: your own questions in place of what is found in it, {"question": Q, "answer": A} a line',
    )  # fmt: skip
    parser.add_argument(
        "--forget-removed", action="store_true", help="with --file: forget what an earlier edition said and this not"
    )
    parser.add_argument("--instruction", metavar="TEXT", help="a behaviour: the text that should become unnecessary")
    parser.add_argument("--name", metavar="NAME", help="with --instruction: its id (default: made of its first words)")
    check = parser.add_mutually_exclusive_group()
    check.add_argument("--check-regex", metavar="REGEX", help="with --instruction: found in an answer that shows it")
    check.add_argument("--rubric", metavar="TEXT", help="with --instruction: what the judge is told besides it")
    no_wait(parser)


def what(parser: argparse.ArgumentParser) -> None:
    """What is taught."""
    parser.add_argument("statement", metavar="STATEMENT", nargs="?", help="one fact, in a sentence")
    parser.add_argument("--question", metavar="Q", help="a question, with --answer: its right answer")
    parser.add_argument("--answer", metavar="A", help="see --question")


def no_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="return when it is recorded, before it is known")


def _run(args: argparse.Namespace) -> int:
    if args.document is not None:
        return _document(args)
    if args.questions is not None or args.forget_removed:
        raise ConfigError("of which document?", "give --file, too")
    if args.instruction is not None:
        return _behaviour(args)
    if args.name is not None or args.check_regex is not None or args.rubric is not None:
        raise ConfigError("of which behaviour?", "give --instruction, too")
    if not _is_fact(args):
        raise ConfigError(
            "there is nothing to teach", "give a STATEMENT, --question and --answer, --file FILE or --instruction TEXT"
        )
    return teach(args)


def _document(args: argparse.Namespace) -> int:
    from apollod.cli.control.lessons import teach_document

    if _is_fact(args):
        raise ConfigError("a document or a fact?", "give --file alone, or the fact alone")
    if args.instruction is not None:
        raise ConfigError("a document or a behaviour?", "give --file alone, or --instruction alone")
    return teach_document.teach(args)


def _is_fact(args: argparse.Namespace) -> bool:
    return args.statement is not None or args.question is not None or args.answer is not None


def _behaviour(args: argparse.Namespace) -> int:
    from apollod.cli.control.lessons import until_known
    from apollod.cli.control.review.deciding import by
    from apollod.core.settings import Check, PatternSettings
    from apollod.wire import control_messages as msg

    if _is_fact(args):
        raise ConfigError("a behaviour or a fact?", "give --instruction alone, or the fact alone")
    check = Check(regex=args.check_regex or "", rubric=args.rubric or "")
    request = msg.TeachRequest(by=by(), pattern=PatternSettings(args.name or "", args.instruction, check=check))
    return until_known.shown(args, ctl.ask(ctl.socket_path(args), request))


def teach(args: argparse.Namespace, replaces: str = "") -> int:
    """Give it, and wait for it. Raises ConfigError for half of a lesson, and what the daemon refuses."""
    from apollod.cli.control.lessons import until_known
    from apollod.cli.control.review.deciding import by
    from apollod.wire import control_messages as msg

    if args.statement is not None and args.answer is not None and args.question is None:
        raise ConfigError("an answer to which question?", "give --question, too, or the STATEMENT alone")
    request = msg.TeachRequest(args.statement or "", args.question or "", args.answer or "", replaces, by())
    return until_known.shown(args, ctl.ask(ctl.socket_path(args), request))
