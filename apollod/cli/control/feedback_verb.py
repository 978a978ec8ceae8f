"""`apollod ctl feedback`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from apollod.cli.control import ctl
from apollod.errors import ConfigError
from apollod.wire import control_messages as msg


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument("response", metavar="ID", help="the `id` of an answer of the engine")
    parser.add_argument(
        "rating", choices=("good", "bad"), nargs="?", help="without one: what was said of it before is shown"
    )
    parser.add_argument(
        "--fix", metavar="FILE", help="with bad: what should have been answered, in a file or from standard input (-)"
    )
    parser.add_argument("--comment", default="", metavar="TEXT", help="kept with the rating")
    parser.add_argument("--choice", type=int, metavar="N", help="which of several choices, from 0")


def _run(args: argparse.Namespace) -> int:
    if not args.rating:
        if args.fix or args.comment:
            raise ConfigError("good or bad?", "write the rating after the id")
        answer = ctl.ask(ctl.socket_path(args), msg.FeedbackQuestion(args.response, args.choice))
    else:
        request = msg.FeedbackRequest(args.response, args.rating, _fix(args.fix), args.comment, args.choice)
        answer = ctl.ask(ctl.socket_path(args), request)
    ctl.show(args, answer, _sentence(answer))
    return 0


def _fix(file: str | None) -> str | None:
    """The correction, without the end of line that editors put there. Raises ConfigError."""
    if file is None:
        return None
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--fix {file} cannot be read: {error}", "name a file of UTF-8 text, or -") from error
    return text.removesuffix("\n")


def _sentence(answer: dict[str, Any]) -> str:
    if not answer["rating"]:
        return f"{answer['response_id']} was not rated"
    said = f"{answer['response_id']} is {answer['rating']}"
    if answer["correction"]:
        said += ", with a correction"
    if answer["example"]:
        said += f"; example {answer['example']} ({answer['state']})"
    if declined := answer.get("declined"):
        said += f"; no longer waits: {', '.join(map(str, declined))}"
    return said + ("" if answer.get("recorded", True) else "; it was said before")
