"""`apollod ctl pattern list|show|add|retire|propose`."""

import argparse
import difflib
import json
import time
from collections.abc import Sequence
from typing import Any

from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.errors import ApolloError, DaemonUnreachable

EPILOG = """\
A pattern is a text that should become unnecessary. Situations are imagined, answered with the text, judged, and the
answers are learned without it, until new situations are answered so untold. docs/operations.md, "Dreams", has more.

examples:
  apollod ctl pattern add ask --instruction 'Ask before you act.' --seed ~/notes --seed view:signals
  apollod ctl pattern add json --instruction-file json.md --schema answer.schema.json --settle 9/10 --dreams 50
  apollod ctl pattern list
  apollod ctl pattern show ask
  apollod ctl pattern retire ask
  apollod ctl pattern propose >> apollod.toml
"""
ADD_EPILOG = """\
examples:
  apollod ctl pattern add greet --instruction 'Begin with a greeting.' --regex '^(Hello|Hi)'
  apollod ctl pattern add ask --instruction-file ask.md --seed ~/notes/lessons.md \\
      --contrast 'You are in autopilot: act at once.' --rubric 'One question, no list.'

A name that is there already with another definition begins anew. Relative paths are of the directory where you are.
A command gets {"messages", "answer"} as JSON on its standard input; exit code 0 says that the behaviour shows, 1 that
it does not.
"""
SHOWN_DREAMS = 10


def add(parser: argparse.ArgumentParser) -> None:
    from apollod.cli.control.dreams import pattern_given

    parser.description = "behaviours that are learned by dreaming until they need no instruction"
    raw = argparse.RawDescriptionHelpFormatter
    parser.epilog, parser.formatter_class = EPILOG, raw
    listed, shown, added, retired, proposed = ctl.actions(
        parser,
        ("list", "every pattern, how far it is, and what comes next", _list),
        ("show", "one pattern in full: definition, tests, budget, why nothing happens, its last dreams", _show),
        ("add", "have a behaviour learned, or change one", _add),
        ("retire", "dream of a pattern no more; what was learned stays learned", _retire),
        ("propose", "patterns made of what is stripped most often and was learned most, as TOML; adds none", _propose),
    )
    added.epilog, added.formatter_class = ADD_EPILOG, raw
    pattern_given.arguments(added)
    for parser_ in (shown, retired):
        parser_.add_argument("name", metavar="NAME", help="of the pattern")
    proposed.add_argument(
        "--limit", type=commands.limit, default=5, metavar="N", help="at most N (default 5); 0 for all"
    )
    proposed.add_argument(
        "--learned", type=commands.limit, default=3, metavar="N", help="of at least N learned examples (default 3)"
    )
    for parser_ in (listed, shown, proposed):
        ctl.of_a_copy(parser_)


def _view(args: argparse.Namespace) -> dict[str, Any]:
    """From the daemon; with --file, or where the configuration names a daemon that does not run, from its journal."""
    if args.file:
        return folded(args.file)
    from apollod.wire import control_messages as msg

    try:
        return ctl.ask(ctl.socket_path(args), msg.PatternsRequest())
    except DaemonUnreachable:
        if not args.config or args.socket:
            raise
        return folded(ctl.journal_path(args))


def folded(path: str) -> dict[str, Any]:
    """What the journal in this file says of patterns, without its daemon."""
    from apollod.cli.control.questions.folded_state import folded_state
    from apollod.supervisor.dreaming.pattern_view import patterns_view

    view = patterns_view(folded_state(path), time.time_ns())
    stopped = "no daemon was asked"
    for pattern in view["patterns"]:
        pattern["waits"] = pattern["waits"] if pattern["state"] == "retired" or not pattern["next"] else stopped
    return view | {"reason": stopped}


def _list(args: argparse.Namespace) -> int:
    from apollod.cli.control.dreams import pattern_page

    view = _view(args)
    ctl.show(args, view, "" if args.json else _page_of_all(view, pattern_page.table(view["patterns"])))
    return 0


def _page_of_all(view: dict[str, Any], table: str) -> str:
    if not view["patterns"]:
        return "there is no pattern; `apollod ctl pattern add --help` says how to add one"
    why = f"; waits: {view['reason']}" if view["reason"] else ""
    return f"{table}\n\n{view['next'] or 'nothing is left to do'}{why}"


def _show(args: argparse.Namespace) -> int:
    patterns = {one["name"]: one for one in _view(args)["patterns"]}
    if (found := patterns.get(args.name)) is None:
        near = difflib.get_close_matches(args.name, patterns, n=1, cutoff=0.0)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ApolloError(f"there is no pattern {args.name}", f"{hint}`apollod ctl pattern list` has them")
    dreams = newest(args, args.name)
    print(json.dumps({"schema_version": 1, "pattern": found, "dreams": dreams}) if args.json else page(found, dreams))
    return 0


def newest(args: argparse.Namespace, name: str) -> list[dict[str, Any]]:
    """The last dreams of a pattern."""
    from apollod.cli.control.dreams import dream_facts

    return dream_facts.newest(ctl.journal_path(args), name, SHOWN_DREAMS)


def page(pattern: dict[str, Any], dreams: Sequence[dict[str, Any]]) -> str:
    """A pattern in full, and these dreams of it."""
    from apollod.cli.control.dreams import dream_verb, pattern_page

    lines = [render.plain(line) for line in pattern_page.page(pattern)]
    return "\n".join([*lines, *(["", dream_verb.table(dreams)] if dreams else [])])


def _add(args: argparse.Namespace) -> int:
    from apollod.cli.control.dreams import pattern_given
    from apollod.cli.control.review.deciding import by
    from apollod.wire import control_messages as msg

    pattern = pattern_given.pattern_of(args)
    answer = ctl.ask(ctl.socket_path(args), msg.PatternAddRequest(pattern, by()))
    said = {
        "added": "is added; its held-out scenarios are imagined first",
        "again": "was retired, and begins anew",
        "replaced": "was another pattern, and begins anew; what was learned of that one stays learned",
        "unchanged": "is there already, just so; nothing was changed",
    }[answer["became"]]
    waits = f" (waits: {answer['waits']})" if answer["waits"] else ""
    ctl.show(args, answer, f"{pattern.name} {said}{waits}")
    return 0


def _retire(args: argparse.Namespace) -> int:
    from apollod.cli.control.review.deciding import by
    from apollod.wire import control_messages as msg

    answer = ctl.ask(ctl.socket_path(args), msg.PatternRetireRequest(args.name, by()))
    stays = f"; what {answer['practices']} practices taught stays learned" if answer["practices"] else ""
    ctl.show(args, answer, f"{args.name} is retired{stays}")
    return 0


def _propose(args: argparse.Namespace) -> int:
    from apollod.cli.control.dreams import proposing

    return proposing.run(args, ctl.journal_path(args))
