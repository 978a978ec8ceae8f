"""`apollod ctl dream start|list|show|stop`."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.cli.control.questions import rows

EPILOG = """\
examples:
  apollod ctl dream list --pattern ask            what was dreamt for it last
  apollod ctl dream show d12                      one dream from its seeds to its tests
  apollod ctl dream start --pattern ask --count 5 five practices now, whatever the schedule says
  apollod ctl dream stop                          none begins until somebody starts them again
"""
_COLUMNS = ("dream", "pattern", "purpose", "mode", "state", "verdict", "shown", "step", "at", "scenario")
COUNT_MAX = 1_000_000


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "situations that are imagined to practise a pattern, and what became of them"
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    started, listed, shown, _ = ctl.actions(
        parser,
        ("start", "dream now, whatever the schedule says, also beside users", _start),
        ("list", "the newest dreams, the newest first, and what became of them", _list),
        ("show", "one dream as a story: seeds, situation, answer, verdict, step, tests", _show),
        ("stop", "begin no dream until somebody starts them again; the one under way is kept", _stop),
    )
    started.add_argument("--pattern", default="", metavar="NAME", help="of this one only (default: of all in turn)")
    started.add_argument(
        "--count", type=_count, default=0, metavar="N", help="so many practices (default: until everything is settled)"
    )
    listed.add_argument("--pattern", default="", metavar="NAME", help="only dreams of this one")
    listed.add_argument(
        "--limit", type=commands.limit, default=20, metavar="N", help="the last N (default 20); 0 for all"
    )
    ctl.jsonl(listed)
    shown.add_argument("dream", metavar="DREAM", help="its id, such as d12")
    for parser_ in (listed, shown):
        ctl.of_a_copy(parser_)


def _count(text: str) -> int:
    count = commands.limit(text)
    if not 1 <= count <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text} practices are none; give a number from 1 to {COUNT_MAX}")
    return count


def _start(args: argparse.Namespace) -> int:
    from apollod.cli.control.review.deciding import by
    from apollod.wire import control_messages as msg

    answer = ctl.ask(ctl.socket_path(args), msg.DreamStartRequest(args.pattern, args.count, by()))
    what = f"{args.count} practices" if args.count else "dreams until everything is settled"
    of = f" of {args.pattern}" if args.pattern else ""
    waits = f"; waits: {answer['reason']}" if answer["reason"] else ""
    ctl.show(args, answer, f"{what}{of}; first {answer['next'] or 'nothing'}{waits}")
    return 0


def _stop(args: argparse.Namespace) -> int:
    from apollod.cli.control.review.deciding import by
    from apollod.wire import control_messages as msg

    answer = ctl.ask(ctl.socket_path(args), msg.DreamStopRequest(by()))
    kept = f"; {answer['dream']} goes on then" if answer["dream"] else ""
    said = f"dreams were stopped already ({answer['stopped']})" if answer["before"] else "no dream begins any more"
    ctl.show(args, answer, f"{said}, until `apollod ctl dream start`{kept}")
    return 0


def _list(args: argparse.Namespace) -> int:
    from apollod.cli.control.dreams import dream_facts

    found = dream_facts.newest(ctl.journal_path(args), args.pattern, args.limit)
    rows.show_list(args, "dreams", found, _COLUMNS, _cells(found))
    return 0


def table(dreams: Sequence[dict[str, Any]]) -> str:
    """Dreams, one a line."""
    return render.table(_COLUMNS, _cells(dreams))


def _cells(dreams: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    shown, names = {None: None, True: "yes", False: "no"}, ("dream", "pattern", "purpose", "mode", "state", "verdict")
    return [(*(d.get(n) for n in names), shown[d["passed"]], d["step"], d["at"][:19], d["said"]) for d in dreams]


def _show(args: argparse.Namespace) -> int:
    from apollod.cli.control.dreams import dream_facts, dream_trail

    found = dream_facts.one(ctl.journal_path(args), args.dream)
    if args.json:
        print(json.dumps({"schema_version": 1, "dream": found}))
    else:
        print("\n".join(render.plain(line) for line in dream_trail.trail(found)))
    return 0
