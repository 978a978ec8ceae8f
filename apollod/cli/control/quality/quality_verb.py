"""`apollod ctl quality run|baseline|report|incident|import`."""

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from apollod.adapters.ipc.light_client import ask_status
from apollod.cli import commands, render
from apollod.cli.commands import REFUSED_BY_GUARD
from apollod.cli.control import ctl, rows
from apollod.cli.control.quality import incident, learned_facts, quality_report
from apollod.errors import ApolloError, ConfigError, RecordRefused
from apollod.explain import reason
from apollod.wire import control_messages as msg

POLL_S = 0.5
EPILOG = """\
examples:
  apollod ctl quality run                    measure now; exit code 5 if that raises an alarm
  apollod ctl quality baseline               compare with the model as it is now, after a change that was intended
  apollod ctl quality report --file copy.db  metrics, looks, incidents and patterns, without a daemon
  apollod ctl quality report --html a.html   the same with charts, to read on a phone or to send
  apollod ctl quality incident show 2        what alarm 2 was about, which lines did it, and what was done
  apollod ctl quality import arc_easy --data arc.jsonl --out arc-probes.jsonl    probes of a public task
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "has the model become worse than it was before it learned?"
    commands.epilog(parser, EPILOG)
    wait = ctl.argument(
        "--wait", action=argparse.BooleanOptionalAction, default=True, help="until it is measured (the default)"
    )
    ctl.actions(
        parser,
        ("run", "ask the probes now, and compare with the baseline", partial(_measure, baseline=False), wait),
        ("baseline", "measure what later measurements are compared with", partial(_measure, baseline=True), wait),
        ("report", "metrics against the baseline, looks, incidents, and what patterns were learned", _report,
         ctl.of_a_copy,
         ctl.argument("--html", metavar="FILE", help="write it as one page that needs nothing else; - for the output")),
        ("incident", "alarms, and what was done about them: list, show", _list, _incident_actions),
        ("import", "write a file of probes from a task of lm-evaluation-harness, without a daemon", _import,
         ctl.argument("task", metavar="TASK", help="its name, such as arc_easy, or the path of its YAML file"),
         ctl.argument("--data", required=True, metavar="PATH",
                      help="its documents: a file, or a directory as on the Hub"),
         ctl.argument("--out", required=True, metavar="FILE", help="a new file, to be named in [quality] probe"),
         partial(commands.limited, default=150, text="documents at most (default 150)")),
    )  # fmt: skip


def _incident_actions(parser: argparse.ArgumentParser) -> None:
    ctl.actions(
        parser,
        ("list", "all alarms, the newest first", _list, ctl.jsonl, ctl.of_a_copy),
        ("show", "one alarm as a story: what fell, what was taken back, which lines did it, how it ended", _show,
         ctl.argument("incident", type=commands.limit, nargs="?", metavar="N",
                      help="its number (default: the last one)"),
         ctl.argument("--verbose", action="store_true", help="each replay of the search, and every event"),
         ctl.of_a_copy),
        nested=True,
    )  # fmt: skip


def _report(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
    found = quality_report.report(path)
    if args.html:
        return _write_html(args, path, found)
    return render.show(args, found, lambda: quality_report.page(found))


def _list(args: argparse.Namespace) -> int:
    return rows.show_list(args, "incidents", incident.incidents(ctl.journal_path(args)), incident.COLUMNS)


def _show(args: argparse.Namespace) -> int:
    found = incident.incident(ctl.journal_path(args), args.incident)
    return render.show(args, {"incident": found}, lambda: incident.page(found, args.verbose))


# --- run, baseline ------------------------------------------------------------------------------------------------


def _measure(args: argparse.Namespace, baseline: bool) -> int:
    """Measure, and compare with the baseline, or make it the `baseline` of later measurements."""
    socket = ctl.socket_path(args)
    asked = ctl.ask(socket, msg.QualityRequest(baseline, ctl.by()))
    what = "a baseline" if baseline else "a measurement"
    if not args.wait:
        return render.show(
            args, asked, f"{what} is asked for" + (f"; waits: {asked['reason']}" if asked["reason"] else "")
        )
    status = _waited(socket, asked["after"])
    path = status["journal"]["path"]
    found = quality_report.answers(path, asked["after"])
    return _told(args, path, found)


def _waited(socket: str, after: int) -> dict[str, Any]:
    """Wait until no measurement is asked for any more, or one failed; show progress. Returns the status."""
    said = ""
    while True:
        status = ask_status(socket)
        quality = status["quality"]
        failed = quality["error"] and quality_report.answers(status["journal"]["path"], after)
        if not quality["asked"] or failed:
            render.progress("")
            return status
        running = f"measuring step {status['step']}" if quality["running"] else ""
        now = running or (f"waits: {quality['reason']}" if quality["reason"] else "waits for its turn")
        render.progress(f"apollod: {now}")
        if now != said and not os.isatty(2):
            render.say(now)
        said = now
        time.sleep(POLL_S)


def _told(args: argparse.Namespace, path: str, found: list[dict[str, Any]]) -> int:
    measured = [one["body"] for one in found if one["kind"] == "quality.measured"]
    alarm = next((one["body"] for one in found if one["kind"] == "quality.alarmed"), None)
    if found and found[-1]["kind"] == "quality.failed":
        failed = found[-1]["body"]
        raise ApolloError(
            f"the probes could not be asked: {failed['reason']}", f"it is tried again in {failed['retry_s']:.0f} s"
        )
    if not measured:
        raise ApolloError("the journal has no answer to this", "`apollod ctl quality report` says what was measured")
    last, metrics = measured[-1], quality_report.metrics_of(incident.read(path))
    answer = {
        "why": last["why"], "step": last["step"], "number": last["number"],
        "seconds": last["seconds"], "tokens": last["tokens"], "metrics": metrics,
        "left_out": last.get("left_out", {}),
        "alarm": None if alarm is None else {"incident": alarm["incident"], "metrics": alarm["metrics"]},
    }  # fmt: skip
    head = f"step {last['step']} is the baseline" if last["why"] == "baseline" else f"step {last['step']}"
    said = [f"{head}, measured in {last['seconds']:.1f} s", "", quality_report.metrics_table(metrics)]
    said += quality_report.left_out(last.get("left_out", {}))
    if alarm is not None:
        said += ["", f"alarm {alarm['incident']}: `apollod ctl quality incident show` tells of it"]
    render.show(args, answer, said)
    return REFUSED_BY_GUARD if alarm is not None else 0


# --- import, report --html ----------------------------------------------------------------------------------------


def _import(args: argparse.Namespace) -> int:
    """Write the file of probes, and report refused documents."""
    from apollod.adapters.lm_eval_tasks import documents
    from apollod.adapters.system.files import write_whole
    from apollod.curation.probes.harness_items import probe_line
    from apollod.curation.probes.probe_item import Probe
    from apollod.curation.probes.probe_lines import probe_of, probe_set

    out = Path(args.out)
    if out.exists():
        raise ApolloError(f"{out} is there already", "name a new file: what is in one may be the probes of a baseline")
    config, asked = documents(args.task, Path(args.data), args.limit)
    lines, kept, refused = list[str](), list[Probe](), list[str]()
    for number, one in asked:
        try:
            line = json.dumps(probe_line(config, number, one), ensure_ascii=False)
            probe_set([*kept, probe := probe_of(line.encode(), f"document {number}")])
        except RecordRefused as error:
            refused.append(str(error))
            continue
        lines.append(line)
        kept.append(probe)
    if not lines:
        why = f": {refused[0]}" if refused else ", since there are no documents"
        raise ApolloError(f"no document of {args.task} can be a probe{why}", "take another task, or other data")
    try:
        write_whole(out, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise ApolloError(f"{out} cannot be written: {reason(error)}", "name another place") from error
    found = {
        "task": config["task"], "output_type": config["output_type"], "out": str(out),
        "probes": len(lines), "left_out": refused,
    }  # fmt: skip
    said = [f"{out} has {len(lines)} probes of {config['task']}"]
    said += [f"left out: {len(refused)}, the first since {refused[0]}"] if refused else []
    said += [f"name it in [quality] probe = [{json.dumps(str(out.resolve()))}], and start the daemon again; then"]
    said += ["`apollod ctl quality baseline` measures a baseline with it, and says of how many the model passes"]
    return render.show(args, found, said)


def _write_html(args: argparse.Namespace, journal: str, report: dict[str, Any]) -> int:
    """Write the page to a file, which replaces an older one once it is whole, or to standard output (`-`). Raises
    ConfigError if it cannot be written."""
    from apollod.adapters.system.files import write_whole
    from apollod.cli.control.quality import report_html

    if args.html == "-" and args.json:
        raise ConfigError("--json and --html - both want the output", "give --html a file")
    text = report_html.page(report, incident.incidents(journal), learned_facts.written(journal))
    if args.html == "-":
        sys.stdout.write(text)
        return 0
    data = text.encode()
    try:
        write_whole(Path(args.html), data)
    except OSError as error:
        why = f"{args.html} cannot be written: {error.strerror}"
        raise ConfigError(why, "name another file, or - for the output") from error
    answer = {"html": args.html, "bytes": len(data)}
    return render.show(args, answer, f"{args.html}: {render.size(len(data))}")
