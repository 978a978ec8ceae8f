"""`apollod ctl lesson list|show|replace|forget|practise`: lessons of the model, and whether it knows them."""

import argparse
import time
from typing import Any, get_args

from apollod.cli import commands, render
from apollod.cli.control import ctl, lesson_page, pattern, rows, teach
from apollod.core.facts.lessons.stages import LessonState
from apollod.errors import ApolloError, ConfigError
from apollod.wire import control_messages as msg

EPILOG = """\
A lesson is a fact, or the right answer to a question, that the model is taught until it answers it in wordings that it
never practised; or a behaviour that it practises until it shows it untold in situations that it never practised, whose
id is its name. `apollod ctl teach` gives one. docs/teach.md has more.

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
    commands.epilog(parser, EPILOG)
    listed, shown, replaced, forgotten, practised = ctl.actions(
        parser,
        ("list", "the newest lessons, the newest first: answers that passed before and after", _list),
        ("show", "one lesson in full: wordings, what was answered before and after, what comes next", _show),
        ("replace", "teach another answer in place of a lesson's; the old one has to go", _replace),
        ("forget", "teach it no more, and take what its steps taught out of the weights", _forget),
        ("practise", "ask it now, whatever is known of it, and practise it where it fails", _practise),
    )
    states = get_args(LessonState)
    listed.add_argument("--state", choices=states, metavar="STATE", help=f"only these: {', '.join(states)}")
    commands.limited(listed)
    listed.add_argument("--document", metavar="NAME", default="", help="only those of a document, such as NOTES.md")
    ctl.jsonl(listed)
    for parser_ in (shown, replaced, practised):
        parser_.add_argument("lesson", metavar="LESSON", help="its id, such as L3, or the name of a behaviour")
    forgotten.add_argument("lesson", metavar="LESSON", nargs="?", help="its id, such as L3, or the name of a behaviour")
    forgotten.add_argument("--document", metavar="NAME", help="all lessons of a document, such as NOTES.md")
    for parser_ in (listed, shown):
        ctl.of_a_copy(parser_)
    commands.epilog(replaced, REPLACE_EPILOG)
    teach.what(replaced)
    for parser_ in (replaced, practised):
        teach.no_wait(parser_)


def _list(args: argparse.Namespace) -> int:
    view = ctl.ask_or_journal(args, msg.LessonsRequest(args.state or "", args.limit, args.document))
    if isinstance(view, str):
        from apollod.supervisor.lesson_view import lessons_view

        view = lessons_view(rows.folded_state(view), args.state or "", args.limit, time.time_ns(), args.document)
    found = view["lessons"]
    if not found and not args.json and not args.jsonl:
        of = f" of {args.document}" if args.document else ""
        which = f"no lesson{of} is {args.state}" if args.state else f"there is no lesson{of}"
        print(f"{which}; `apollod ctl teach --help` says how to give one")
        return 0
    rows.show_list(args, "lessons", found, lesson_page.COLUMNS)
    return 0


def _show(args: argparse.Namespace) -> int:
    found = ctl.ask_or_journal(args, msg.LessonQuestion(args.lesson))
    if isinstance(found, str):
        found = _folded(found, args.lesson)
    if found["kind"] == "behaviour":
        return _show_behaviour(args, found)
    asked = lesson_page.rounds(ctl.journal_path(args), found["lesson"])
    ctl.show(args, {**found, "rounds": asked}, lambda: lesson_page.page(found, asked))
    return 0


def _show_behaviour(args: argparse.Namespace, found: dict[str, Any]) -> int:
    dreams = pattern.newest(args, found["lesson"])
    answer = {**found, "rounds": [], "dreams": dreams}
    pages = lesson_page.page(found, ())
    ctl.show(args, answer, lambda: [*pages, "", pattern.page_with_dreams(found["pattern"], dreams)])
    return 0


def _folded(path: str, lesson: str) -> dict[str, Any]:
    from apollod.supervisor.lesson_view import found, lesson_view

    state = rows.folded_state(path)
    if (one := found(state, lesson)) is None:
        raise ApolloError(f"the journal has no lesson {lesson}", "`apollod ctl lesson list` has them")
    return lesson_view(state, one, time.time_ns())


def _replace(args: argparse.Namespace) -> int:
    if args.statement is None and args.answer is None:
        raise ConfigError(f"what is right instead of {args.lesson}?", "give a STATEMENT, or --answer A")
    return teach.teach(args, replaces=args.lesson)


def _forget(args: argparse.Namespace) -> int:
    if (args.lesson is None) == (args.document is None):
        raise ConfigError("forget which lesson?", "give LESSON, or --document NAME for all of a document")
    if args.document is not None:
        answer = ctl.ask(ctl.socket_path(args), msg.DocumentForgetRequest(args.document, ctl.by()))
        what = f"{args.document} is taught no more ({len(answer['lessons'])} lessons)"
    else:
        answer = ctl.ask(ctl.socket_path(args), msg.LessonForgetRequest(args.lesson, ctl.by()))
        what = f"{answer['lesson']} is taught no more"
    count = len(answer["forgotten"])
    out = f"{count} examples are taken out of the weights" if count else "no step had learned it"
    ctl.show(args, answer, f"{what}; {out}")
    return 0


def _practise(args: argparse.Namespace) -> int:
    answer = ctl.ask(ctl.socket_path(args), msg.LessonPractiseRequest(args.lesson, ctl.by()))
    if answer["already"]:
        render.say(f"{answer['lesson']} is {answer['state']} already")
    return teach.show_when_known(args, {**answer, "already": False})
