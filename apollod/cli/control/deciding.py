"""`apollod ctl example approve|decline|hold|edit`: what a person decides about examples."""

import argparse
import getpass
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from apollod.cli import render
from apollod.cli.control import ctl
from apollod.cli.control.questions import example_ids, rows
from apollod.errors import ConfigError
from apollod.wire import control_messages as msg

_DONE = {"approve": "approved", "decline": "declined", "hold": "held"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which examples, and why."""
    parser.add_argument("examples", nargs="+", metavar="EXAMPLE", help="ids, or their first 6 or more digits")
    parser.add_argument("--reason", default="", help="kept beside the decision")


def edit_arguments(parser: argparse.ArgumentParser) -> None:
    """Which example, and where the text is."""
    parser.add_argument("example", metavar="EXAMPLE", help="its id or its first 6 or more digits")
    parser.add_argument(
        "--file",
        metavar="FILE",
        dest="text",
        help="the record as JSON, - for standard input; default: $EDITOR opens it",
    )


def approve(args: argparse.Namespace) -> int:
    """They wait at the end of the queue."""
    return _decide(args, "approve")


def decline(args: argparse.Namespace) -> int:
    """They are not learned; what is learned already is not touched."""
    return _decide(args, "decline")


def hold(args: argparse.Namespace) -> int:
    """What waits, or was decided against, waits for a decision again."""
    return _decide(args, "hold")


def edit(args: argparse.Namespace) -> int:
    """What was written is learned instead, before all else."""
    path = ctl.journal_path(args)
    id_ = example_ids.meant(path, args.example)
    ((record,),) = rows.tuples(path, f"SELECT record FROM examples WHERE id = '{id_}'")
    if args.text:
        written = sys.stdin.buffer.read() if args.text == "-" else Path(args.text).read_bytes()
    else:
        written = edited(json.loads(record))
    answer = ctl.ask(ctl.socket_path(args), msg.EditRequest(id_, line_of(written), by()))
    ctl.show(args, answer, f"{answer['into']} is learned instead")
    return 0


def by() -> str:
    """Who decides, as the journal names them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in this container
        return f"uid {os.getuid()}"


def line_of(written: bytes) -> bytes:
    """JSON on any number of lines as one line. Raises ConfigError."""
    try:
        return json.dumps(json.loads(written)).encode()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"what was written is not JSON: {error}", "nothing was changed") from error


def edited(record: dict[str, Any]) -> bytes:
    """What a person makes of a record in their editor ($VISUAL, $EDITOR, else vi). Raises ConfigError."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w+b", prefix="apollod-", suffix=".json") as file:
        file.write(json.dumps(record, indent=2, ensure_ascii=False).encode() + b"\n")
        file.flush()
        done = _run(editor, file.name)
        if done != 0:
            raise ConfigError(f"{editor} ended with {done}", "nothing was changed; $EDITOR names another one")
        return Path(file.name).read_bytes()


def _run(editor: str, path: str) -> int:
    """$EDITOR may have arguments: the shell takes it apart, as git does."""
    return subprocess.run(["/bin/sh", "-c", f'{editor} "$@"', editor, path], check=False).returncode


def _decide(args: argparse.Namespace, choice: Literal["approve", "decline", "hold"]) -> int:
    """Exit code 1 if any of them came too late."""
    path = ctl.journal_path(args)
    ids = list(dict.fromkeys(example_ids.meant(path, example) for example in args.examples))
    wanted = [msg.DecisionWanted(id_, choice, args.reason) for id_ in ids]
    answer = ctl.ask(ctl.socket_path(args), msg.DecideRequest(wanted, by()))
    count = len(answer[_DONE[choice]])
    ctl.show(args, answer, f"{count} {_DONE[choice]}")
    for one in answer["refused"]:
        print(render.plain(f"apollod: {one['example']}: {one['why']}"), file=sys.stderr)
    return 1 if answer["refused"] else 0
