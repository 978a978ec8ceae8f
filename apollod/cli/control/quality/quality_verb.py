"""`apollod ctl quality run|baseline|report|incident|import`."""

import argparse
import json

from apollod.cli import commands, render
from apollod.cli.control import ctl

EPILOG = """\
examples:
  apollod ctl quality run                    measure now; exit code 5 if that raises an alarm
  apollod ctl quality baseline               compare with the model as it is now, after a change that was intended
  apollod ctl quality report --file copy.db  metrics, looks, incidents and patterns, without a daemon
  apollod ctl quality report --html a.html   the same with charts, to read on a phone or to send to somebody
  apollod ctl quality incident show 2        what alarm 2 was about, which lines did it, and what was done
  apollod ctl quality import arc_easy --data arc.jsonl --out arc-probes.jsonl    probes of a public task
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "has the model become worse than it was before it learned?"
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    run, baseline, report, incident, taken = ctl.actions(
        parser,
        ("run", "ask the probes now, and compare with the baseline", _run),
        ("baseline", "measure what later measurements are compared with", _baseline),
        ("report", "metrics against the baseline, looks, incidents, and what patterns were learned", _report),
        ("incident", "alarms, and what was done about them: list, show", _list),
        ("import", "write a file of probes from a task of lm-evaluation-harness, without a daemon", _import),
    )
    taken.add_argument("task", metavar="TASK", help="its name, such as arc_easy, or the path of its YAML file")
    taken.add_argument(
        "--data", required=True, metavar="PATH", help="its documents: a file, or a directory as on the Hub"
    )
    taken.add_argument("--out", required=True, metavar="FILE", help="a new file, to be named in [quality] probe")
    taken.add_argument("--limit", type=commands.limit, default=150, metavar="N", help="documents at most (default 150)")
    for asking in (run, baseline):
        asking.add_argument(
            "--wait", action=argparse.BooleanOptionalAction, default=True, help="until it is measured (the default)"
        )
    ctl.of_a_copy(report)
    report.add_argument("--html", metavar="FILE", help="write it as one page that needs nothing else; - for the output")
    listed, shown = ctl.actions(
        incident,
        ("list", "all alarms, the newest first", _list),
        ("show", "one alarm as a story: what fell, what was taken back, which lines did it, how it ended", _show),
        nested=True,
    )
    ctl.jsonl(listed)
    shown.add_argument(
        "incident", type=commands.limit, nargs="?", metavar="N", help="its number (default: the last one)"
    )
    shown.add_argument("--verbose", action="store_true", help="each replay of the search, and every event")
    for reading in (listed, shown):
        ctl.of_a_copy(reading)


def _run(args: argparse.Namespace) -> int:
    from apollod.cli.control.quality import asking

    return asking.run(args)


def _baseline(args: argparse.Namespace) -> int:
    from apollod.cli.control.quality import asking

    return asking.baseline(args)


def _report(args: argparse.Namespace) -> int:
    from apollod.cli.control.quality import quality_facts, quality_page

    path = ctl.journal_path(args)
    found = quality_facts.report(path)
    if args.html:
        from apollod.cli.control.quality import report_files

        return report_files.show(args, path, found)
    ctl.show(args, found, "" if args.json else "\n".join(quality_page.report(found)))
    return 0


def _import(args: argparse.Namespace) -> int:
    from apollod.cli.control.quality import importing

    return importing.take(args)


def _list(args: argparse.Namespace) -> int:
    from apollod.cli.control.quality import incident_facts, incident_page

    found = incident_facts.incidents(ctl.journal_path(args))
    if args.jsonl:
        for one in found:
            print(json.dumps(one))
        return 0
    ctl.show(args, {"schema_version": 1, "incidents": found}, incident_page.incident_list(found))
    return 0


def _show(args: argparse.Namespace) -> int:
    from apollod.cli.control.quality import incident_facts, incident_page

    found = incident_facts.incident(ctl.journal_path(args), args.incident)
    if args.json:
        print(json.dumps({"schema_version": 1, "incident": found}))
    else:
        print("\n".join(render.plain(line) for line in incident_page.incident(found, args.verbose)))
    return 0
