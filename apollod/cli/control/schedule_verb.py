"""`apollod ctl schedule show`: what is learned when, what comes next, and why."""

import argparse
import time
from typing import Any

from apollod.adapters.ipc.status_client import ask_status
from apollod.cli.control import ctl
from apollod.cli.render import has_patterns

SHOWN = ("step", "checkpoint")


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "when what came from files and logs is learned: at any time, or at night"
    ctl.actions(parser, ("show", "what comes next, and why", _show))


def _show(args: argparse.Namespace) -> int:
    status = ask_status(ctl.socket_path(args))
    schedule, queue = status.get("schedule", {}), status["queue"]
    waits = {name: status.get("activities", {}).get(name, "") for name in SHOWN}
    answer = {
        "schema_version": 1, "schedule": schedule, "pending": queue["pending"], "waits": waits,
        "checkpoint_due_in_s": status["checkpoint"].get("due_in_s"), "dreams": status.get("dreams", {}),
    }  # fmt: skip
    ctl.show(args, answer, "\n".join(_lines(answer)))
    return 0


def _lines(answer: dict[str, Any]) -> list[str]:
    due, pending = answer["checkpoint_due_in_s"], answer["pending"]
    return [
        f"hours       {_hours(answer['schedule'])}",
        f"next step   {_next(pending, answer['waits']['step'])}",
        f"checkpoint  {'nothing is unsaved' if due is None else f'in {due:.0f} s' if due else 'now'}"
        + (f" ({answer['waits']['checkpoint']})" if due is not None and answer["waits"]["checkpoint"] else ""),
        *_dreams(answer["dreams"], answer["schedule"]),
    ]


def _dreams(dreams: dict[str, Any], schedule: dict[str, Any]) -> list[str]:
    """When one dreams, and what comes next."""
    if not has_patterns(dreams):
        return ["dreams      none: there is no pattern; `apollod ctl pattern add` or [[dream.pattern]] adds one"]
    when = {"idle": "while nobody else uses the engine", "always": "beside users", "off": "when somebody asks for it"}
    at_night = " at night" if schedule.get("dream") == "night" and dreams["mode"] != "off" else ""
    lines = [f"dreams      {when.get(dreams['mode'], dreams['mode'])}{at_night}"]
    lines.append(f"next dream  {dreams['next'] or 'nothing is left to do'}")
    if dreams["next"] and dreams["reason"]:
        lines.append(f"waits for   {dreams['reason']}")
    return lines


def _hours(schedule: dict[str, Any]) -> str:
    if not schedule.get("nightly"):
        return "any: examples are learned as they come; [schedule] nightly would have them wait for the night"
    hours = f"{schedule['nightly']} {schedule['zone'] or 'local time'}"
    if schedule["open"]:
        now = "missed, and caught up now" if schedule.get("late") else "now"
        return f"{hours}: {now}, until {_when(schedule['closes_at'])}; {schedule['steps']} steps so far"
    return f"{hours}: next on {_when(schedule['opens_at'])}; what is given directly does not wait"


def _next(pending: int, why: str) -> str:
    if not pending:
        return "nothing waits to be learned"
    return f"{pending} examples wait" + (f": {why}" if why else "; the next step begins at once")


def _when(moment: float | None) -> str:
    return "?" if moment is None else time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(moment))
