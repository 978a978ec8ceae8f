"""Asks the daemon for a measurement, and waits for it."""

import argparse
import sys
import time
from typing import Any

from apollod.adapters.ipc.status_client import ask_status
from apollod.cli import render
from apollod.cli.commands import REFUSED_BY_GUARD
from apollod.cli.control import ctl
from apollod.cli.control.quality import quality_facts, quality_page
from apollod.cli.control.review.deciding import by
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

POLL_S = 0.5


def run(args: argparse.Namespace) -> int:
    """Measure, and compare with the baseline."""
    return _measure(args, baseline=False)


def baseline(args: argparse.Namespace) -> int:
    """Have later measurements compared with the model as it is now."""
    return _measure(args, baseline=True)


def _measure(args: argparse.Namespace, baseline: bool) -> int:
    socket = ctl.socket_path(args)
    asked = ctl.ask(socket, msg.QualityRequest(baseline, by()))
    what = "a baseline" if baseline else "a measurement"
    if not args.wait:
        ctl.show(args, asked, f"{what} is asked for" + (f"; waits: {asked['reason']}" if asked["reason"] else ""))
        return 0
    status = _waited(socket, asked["after"])
    path = status["journal"]["path"]
    found = quality_facts.answers(path, asked["after"])
    return _told(args, path, found)


def _waited(socket: str, after: int) -> dict[str, Any]:
    """The status once nobody waits for a measurement any more, or one failed; progress on standard error meanwhile."""
    progress = _Progress()
    while True:
        status = ask_status(socket)
        quality = status["quality"]
        failed = quality["error"] and quality_facts.answers(status["journal"]["path"], after)
        if not quality["asked"] or failed:
            progress.end()
            return status
        running = f"measuring step {status['step']}" if quality["running"] else ""
        progress.say(running or (f"waits: {quality['reason']}" if quality["reason"] else "waits for its turn"))
        time.sleep(POLL_S)


class _Progress:
    """One line on standard error, written over on a terminal."""

    def __init__(self) -> None:
        self._said, self._over = "", sys.stderr.isatty()

    def say(self, text: str) -> None:
        if text == self._said:
            return
        self._said, line = text, render.plain(f"apollod: {text}")
        print(f"\r\x1b[K{line}" if self._over else line, end="" if self._over else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._said and self._over:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


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
    last, now = measured[-1], quality_facts.known(path)
    metrics = now.metrics()
    answer = {
        "schema_version": 1, "why": last["why"], "step": last["step"], "number": last["number"],
        "seconds": last["seconds"], "tokens": last["tokens"], "metrics": metrics,
        "left_out": last.get("left_out", {}),
        "alarm": None if alarm is None else {"incident": alarm["incident"], "metrics": alarm["metrics"]},
    }  # fmt: skip
    head = f"step {last['step']} is the baseline" if last["why"] == "baseline" else f"step {last['step']}"
    out = "".join(f"\n{line}" for line in quality_page.left_out(last.get("left_out", {})))
    said = "" if alarm is None else f"\n\nalarm {alarm['incident']}: `apollod ctl quality incident show` tells of it"
    ctl.show(args, answer, f"{head}, measured in {last['seconds']:.1f} s\n\n{quality_page.metrics(metrics)}{out}{said}")
    return REFUSED_BY_GUARD if alarm is not None else 0
