"""Waiting for a lesson to be known or given up, and what is said then."""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from string import digits
from typing import Any

from apollod.cli import render
from apollod.cli.control import ctl
from apollod.cli.control.lessons.lesson_page import sentence
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

WAIT_S = 0.3
OVER = ("known", "given up", "replaced")
"""states in which nothing more becomes of a lesson by itself"""
_NO_DIGITS = str.maketrans("", "", digits)
"""what waits for something that is counted is said once, not with every number"""
PROMISED = ("schema_version", "lesson", "state", "before", "after", "kept", "steps", "drift", "seconds")
BESIDE = ("kind", "reason", "question", "answer", "already")
"""fields of what `--json` prints: those of the contract, and others"""


def shown(args: argparse.Namespace, given: dict[str, Any]) -> int:
    """Print what becomes of a lesson that was given, or with --no-wait what there is of it; the exit code."""
    found = given if args.no_wait else _waited(ctl.socket_path(args), given)
    found = {**found, "already": given["already"]}
    answer = {name: found[name] for name in (*PROMISED, *BESIDE)}
    ctl.show(args, answer, sentence(found))
    return 0 if args.no_wait or found["state"] == "known" else 1


def _waited(path: str, lesson: dict[str, Any]) -> dict[str, Any]:
    """It, when nothing more becomes of it by itself; progress on standard error if somebody watches, and why nothing
    happens in any case. Raises ApolloError where the daemon cannot go on by itself."""
    watched, said = os.isatty(2), ""
    try:
        while lesson["state"] not in OVER:
            if watched:
                print(f"\r\x1b[K{render.plain(_progress(lesson))}", end="", file=sys.stderr, flush=True)
            elif (waits := _waits(lesson)) and (words := waits.translate(_NO_DIGITS)) != said:
                print(render.plain(f"apollod: {lesson['lesson']} waits: {waits}"), file=sys.stderr)
                said = words
            if lesson["waits"]:
                check(path, f"lesson {lesson['lesson']} waits", f"lesson show {lesson['lesson']}")
            time.sleep(WAIT_S)
            lesson = ctl.ask(path, msg.LessonQuestion(lesson["lesson"], lesson["given_at"]))
    finally:
        if watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return lesson


def _progress(lesson: Mapping[str, Any]) -> str:
    """One line, of about the width of a terminal."""
    parts = [f"{lesson['lesson']} {lesson['state']}"]
    if lesson["stage"]:
        passed, of = lesson["asked"] if lesson["asked"][1] else lesson["after"]["bare"]
        parts += [f"round {lesson['round']}: {lesson['stage']}", *([f"{passed} of {of}"] if of else [])]
        parts += [f"{lesson['steps']} steps, {lesson['seconds']:.0f} s"]
    if waits := _waits(lesson):
        parts.append(f"waits: {waits}")
    return ", ".join(parts)


def _waits(lesson: Mapping[str, Any]) -> str:
    return str(lesson["waits"] or lesson["error"])


def check(path: str, waits: str, verb: str) -> None:
    """Raises ApolloError where the daemon cannot go on by itself. `verb`: of `apollod ctl`, that says how far it is."""
    now = ctl.status(path)
    if now.state in ("degraded", "stopping"):
        raise ApolloError(
            f"the daemon is {now.state}{f': {now.error}' if now.error else ''}; {waits}",
            f"see `apollod ctl status`; afterwards `apollod ctl {verb}` says how far it is",
        )
