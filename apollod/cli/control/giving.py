"""Lines on their way to the daemon: `submit` and `train` give them here, and wait here for what becomes of them."""

import sys
from typing import Any, BinaryIO

from apollod.cli import render
from apollod.cli.control import ctl
from apollod.cli.control.quality.until_learned import until_learned
from apollod.wire import control_messages as msg

SUBMIT_BYTES = 8 << 20
"""of one request"""


def give(path: str, stream: BinaryIO, source: str, name: str, wait: bool) -> dict[str, Any]:
    """Send every line to the daemon, which is asked even if there is none; what became of them. `source`: what the
    journal calls them; `name`: what messages call them; `wait`: return when they are learned; then
    `taken_back` has those that the quality guard took back and holds."""
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
        total["taken_back"] = until_learned(path, total["examples"])
    return total


def _take(stream: BinaryIO) -> list[bytes]:
    """The lines of one request."""
    lines: list[bytes] = []
    taken = 0
    while len(lines) < msg.SUBMIT_LINES and taken < SUBMIT_BYTES and (line := stream.readline()):
        lines.append(line)
        taken += len(line)
    return lines
