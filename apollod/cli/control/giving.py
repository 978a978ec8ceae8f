"""Lines on their way to the daemon: `submit` and `train` give them here, and wait here for what becomes of them."""

import os
import sys
import time
from typing import Any, BinaryIO

from apollod.cli import render
from apollod.cli.control import ctl
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

SUBMIT_LINES, SUBMIT_BYTES = 1000, 8 << 20
"""of one request"""
WAIT_S = 0.5


def give(path: str, stream: BinaryIO, source: str, name: str, wait: bool) -> dict[str, Any]:
    """Send every line to the daemon, which is asked even if there is none; what became of them. `source`: what the
    journal calls them; `name`: what messages call them; `wait`: return when they are learned."""
    total: dict[str, Any] = {"schema_version": 1, "examples": [], "duplicates": [], "held": [], "rejected": []}
    first, lines = 1, _take(stream)
    while True:
        answer = ctl.ask(path, msg.SubmitRequest(lines, source, first))
        total["examples"] += answer["examples"]
        total["duplicates"] += answer["duplicates"]
        total["held"] += answer.get("held", [])
        total["rejected"] += answer["rejected"]
        first += len(lines)
        if not (lines := _take(stream)):
            break
    for rejected in total["rejected"]:
        print(render.plain(f"apollod: {name}:{rejected['line']}: {rejected['reason']}"), file=sys.stderr)
    for held in total["held"]:
        print(render.plain(f"apollod: {name}:{held['line']}: held for a person: {held['reason']}"), file=sys.stderr)
    if wait and total["examples"]:
        _wait(path)
    return total


def _take(stream: BinaryIO) -> list[bytes]:
    """The lines of one request."""
    lines: list[bytes] = []
    taken = 0
    while len(lines) < SUBMIT_LINES and taken < SUBMIT_BYTES and (line := stream.readline()):
        lines.append(line)
        taken += len(line)
    return lines


def _wait(path: str) -> None:
    """Until nothing is pending; progress on stderr if somebody watches."""
    while True:
        now = ctl.status(path)
        if os.isatty(2):
            print(f"\rstep {now.step}, {now.queue.pending} pending   ", end="", file=sys.stderr, flush=True)
        if not now.queue.pending:
            break
        if now.state in ("degraded", "stopping"):
            raise ApolloError(f"the daemon is {now.state}: {now.error}", "see `apollod ctl status`")
        time.sleep(WAIT_S)
    if os.isatty(2):
        print(file=sys.stderr)
