"""`apollod ctl lesson list|show|replace|forget|practise`."""

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, get_args

from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.cli.control.lessons import teach_verb
from apollod.cli.control.questions import rows
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable

if TYPE_CHECKING:
    import msgspec

EPILOG = """\
A lesson is a fact, or the right answer to a question, that the model is taught until it answers it in wordings that it
never practised; or a behaviour that it practises until it shows it untold in situations that it never practised, whose
id is its name. `apollod ctl teach` gives one. docs/operations.md, "Lessons", has more.

examples:
  apollod ctl lesson list --state "given up"
  apollod ctl lesson show L3                 what was asked, what was answered before and after
  apollod ctl lesson replace L3 --answer "Quillon listens on port 8802."
  apollod ctl lesson forget L3               taught no more, and out of the weights
  apollod ctl lesson forget --document NOTES.md
  apollod ctl lesson practise L3             asked again now, and practised where it fails
  apollod ctl lesson forget answer-in-one-sentence      a behaviour, and what its dreams taught
"""
REPLACE_EPILOG = """\
examples:
  apollod ctl lesson replace L3 "Quillon listens on port 8802."
  apollod ctl lesson replace L3 --answer "Quillon listens on port 8802."      to the same question

The new lesson counts as known only where the old answer is gone. It is waited for as with `apollod ctl teach`.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "what the model was taught, and whether it knows it"
    raw = argparse.RawDescriptionHelpFormatter
    parser.epilog, parser.formatter_class = EPILOG, raw
    listed, shown, replaced, forgotten, practised = ctl.actions(
        parser,
        ("list", "the newest lessons, the newest first: answers that passed before and after", _list),
        ("show", "one lesson in full: wordings, what was answered before and after, what comes next", _show),
        ("replace", "teach another answer in place of a lesson's; the old one has to go", _replace),
        ("forget", "teach it no more, and take what its steps taught out of the weights", _forget),
        ("practise", "ask it now, whatever is known of it, and practise it where it fails", _practise),
    )
    listed.add_argument("--state", choices=_states(), metavar="STATE", help=f"only these: {', '.join(_states())}")
    listed.add_argument(
        "--limit", type=commands.limit, default=20, metavar="N", help="the last N (default 20); 0 for all"
    )
    listed.add_argument("--document", metavar="NAME", default="", help="only those of a document, such as NOTES.md")
    ctl.jsonl(listed)
    for parser_ in (shown, replaced, practised):
        parser_.add_argument("lesson", metavar="LESSON", help="its id, such as L3, or the name of a behaviour")
    forgotten.add_argument("lesson", metavar="LESSON", nargs="?", help="its id, such as L3, or the name of a behaviour")
    forgotten.add_argument("--document", metavar="NAME", help="all lessons of a document, such as NOTES.md")
    for parser_ in (listed, shown):
        ctl.of_a_copy(parser_)
    replaced.epilog, replaced.formatter_class = REPLACE_EPILOG, raw
    teach_verb.what(replaced)
    for parser_ in (replaced, practised):
        teach_verb.no_wait(parser_)


def _states() -> tuple[str, ...]:
    from apollod.core.lessons.stages import LessonState

    return get_args(LessonState)


def _asked(args: argparse.Namespace, request: "msgspec.Struct") -> dict[str, Any] | str:
    """The daemon's answer; or, with --file, and where the configuration names a daemon that does not run, its
    journal."""
    if args.file:
        return str(args.file)
    try:
        return ctl.ask(ctl.socket_path(args), request)
    except DaemonUnreachable:
        if not args.config or args.socket:
            raise
        return ctl.journal_path(args)


def _list(args: argparse.Namespace) -> int:
    from apollod.cli.control.lessons import lesson_page
    from apollod.wire import control_messages as msg

    view = _asked(args, msg.LessonsRequest(args.state or "", args.limit, args.document))
    if isinstance(view, str):
        from apollod.cli.control.questions.folded_state import folded_state
        from apollod.supervisor.lessons.lesson_view import lessons_view

        view = lessons_view(folded_state(view), args.state or "", args.limit, time.time_ns(), args.document)
    found = view["lessons"]
    if not found and not args.json and not args.jsonl:
        of = f" of {args.document}" if args.document else ""
        which = f"no lesson{of} is {args.state}" if args.state else f"there is no lesson{of}"
        print(f"{which}; `apollod ctl teach --help` says how to give one")
        return 0
    rows.show_list(args, "lessons", found, lesson_page.COLUMNS, lesson_page.cells(found))
    return 0


def _show(args: argparse.Namespace) -> int:
    from apollod.cli.control.lessons import lesson_facts, lesson_page
    from apollod.wire import control_messages as msg

    found = _asked(args, msg.LessonQuestion(args.lesson))
    if isinstance(found, str):
        found = _folded(found, args.lesson)
    if found["kind"] == "behaviour":
        return _show_behaviour(args, found)
    asked = lesson_facts.rounds(ctl.journal_path(args), found["lesson"])
    if args.json:
        print(json.dumps({**found, "rounds": asked}))
    else:
        print("\n".join(render.plain(line) for line in lesson_page.page(found, asked)))
    return 0


def _show_behaviour(args: argparse.Namespace, found: dict[str, Any]) -> int:
    from apollod.cli.control.dreams import pattern_verb
    from apollod.cli.control.lessons import lesson_page

    dreams = pattern_verb.newest(args, found["lesson"])
    if args.json:
        print(json.dumps({**found, "rounds": [], "dreams": dreams}))
        return 0
    print("\n".join(render.plain(line) for line in lesson_page.page(found, ())))
    print("\n" + pattern_verb.page(found["pattern"], dreams))
    return 0


def _folded(path: str, lesson: str) -> dict[str, Any]:
    from apollod.cli.control.questions.folded_state import folded_state
    from apollod.supervisor.lessons.lesson_view import found, lesson_view

    state = folded_state(path)
    if (one := found(state, lesson)) is None:
        raise ApolloError(f"the journal has no lesson {lesson}", "`apollod ctl lesson list` has them")
    return lesson_view(state, one, time.time_ns())


def _replace(args: argparse.Namespace) -> int:
    if args.statement is None and args.answer is None:
        raise ConfigError(f"what is right instead of {args.lesson}?", "give a STATEMENT, or --answer A")
    return teach_verb.teach(args, replaces=args.lesson)


def _forget(args: argparse.Namespace) -> int:
    from apollod.cli.control.review.deciding import by
    from apollod.wire import control_messages as msg

    if (args.lesson is None) == (args.document is None):
        raise ConfigError("forget which lesson?", "give LESSON, or --document NAME for all of a document")
    if args.document is not None:
        answer = ctl.ask(ctl.socket_path(args), msg.DocumentForgetRequest(args.document, by()))
        what = f"{args.document} is taught no more ({len(answer['lessons'])} lessons)"
    else:
        answer = ctl.ask(ctl.socket_path(args), msg.LessonForgetRequest(args.lesson, by()))
        what = f"{answer['lesson']} is taught no more"
    count = len(answer["forgotten"])
    out = f"{count} examples are taken out of the weights" if count else "no step had learned it"
    ctl.show(args, answer, f"{what}; {out}")
    return 0


def _practise(args: argparse.Namespace) -> int:
    from apollod.cli.control.lessons import until_known
    from apollod.cli.control.review.deciding import by
    from apollod.wire import control_messages as msg

    answer = ctl.ask(ctl.socket_path(args), msg.LessonPractiseRequest(args.lesson, by()))
    if answer["already"]:
        print(render.plain(f"apollod: {answer['lesson']} is {answer['state']} already"), file=sys.stderr)
    return until_known.shown(args, {**answer, "already": False})
