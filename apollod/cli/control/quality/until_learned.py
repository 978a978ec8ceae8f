"""Waiting for what was given to be learned, and for the quality guard to have its say about it."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from apollod.cli import render
from apollod.cli.control import ctl
from apollod.errors import ApolloError

if TYPE_CHECKING:
    from apollod.wire import status as st

WAIT_S = 0.5


def until_learned(path: str, examples: Sequence[str]) -> list[str]:
    """Wait until nothing is pending, no look is under way and no alarm is open; progress on standard error if somebody
    watches. Those of `examples` that an alarm took back and holds, with a line that says so. Raises
    ApolloError where the daemon cannot go on by itself."""
    try:
        while True:
            now = ctl.status(path)
            if os.isatty(2):
                print(f"\r\x1b[K{render.plain(_progress(now))}", end="", file=sys.stderr, flush=True)
            if _is_over(now):
                break
            time.sleep(WAIT_S)
    finally:
        if os.isatty(2):
            print(file=sys.stderr)
    held = _held(now, examples) if now.quality.incidents else []
    alarm = now.quality.incident
    if not held and alarm is not None:
        raise ApolloError(
            f"alarm {alarm.number} of the quality guard waits for a person",
            f"see `apollod ctl quality incident show {alarm.number}`; `apollod ctl resume` goes on",
        )
    if held:
        number = alarm.number if alarm is not None else now.quality.incidents
        print(
            f"apollod: the quality guard took back and holds {len(held)} of {len(examples)} examples; see "
            f"`apollod ctl quality incident show {number}`",
            file=sys.stderr,
        )
    return held


def _progress(now: "st.Status") -> str:
    if now.quality.incident is not None:
        done = now.quality.incident
        search = f", replay {done.replays} of at most {done.replays_max}" if done.phase == "searching" else ""
        return f"step {now.step}, alarm {done.number} of the quality guard{search}"
    looked_at = ", measured by probes" if now.quality.running else ""
    return f"step {now.step}, {now.queue.pending} pending{looked_at}"


def _is_over(now: "st.Status") -> bool:
    """Nothing more becomes of it before somebody does something."""
    quality = now.quality
    if (alarm := quality.incident) is not None:
        if now.error or now.state == "stopping":
            raise _stuck(now)
        waits = alarm.phase == "named" and now.running is None and bool(now.activities.get("step"))
        return alarm.phase == "stuck" or waits
    if now.queue.pending:
        if now.state in ("degraded", "stopping"):
            raise _stuck(now)
        return False
    begins = quality.enabled and bool(quality.due) and not quality.reason and not quality.error
    return now.state in ("degraded", "stopping") or not (quality.running or begins)


def _stuck(now: "st.Status") -> ApolloError:
    return ApolloError(f"the daemon is {now.state}: {now.error}", "see `apollod ctl status`")


def _held(now: "st.Status", examples: Sequence[str]) -> list[str]:
    from apollod.cli.control.quality.culprit_lines import held_by_guard

    return held_by_guard(now.journal.path, examples)
