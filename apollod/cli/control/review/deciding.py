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
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

Choice = Literal["approve", "decline", "hold"]
DONE: dict[Choice, str] = {"approve": "approved", "decline": "declined", "hold": "held"}
"""What the daemon's answer calls them."""


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
        written = edited(as_text(json.loads(record)))
    try:
        answer = ctl.ask(ctl.socket_path(args), msg.EditRequest(id_, line_of(written), by()))
    except ApolloError as error:
        if args.text:
            raise
        error.hint = f"{error.hint}; what you wrote is in {_kept(written)}, which --file takes"
        raise
    ctl.show(args, answer, f"{answer['into']} is learned instead")
    return 0


def by() -> str:
    """Who decides, as the journal names them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in this container
        return f"uid {os.getuid()}"


def line_of(written: bytes) -> bytes:
    """JSON on any number of lines as one line. Raises ApolloError."""
    try:
        return json.dumps(json.loads(written)).encode()
    except (ValueError, RecursionError) as error:
        raise ApolloError(f"what was written is not JSON: {error}", "nothing was changed") from error


def as_text(record: dict[str, Any]) -> bytes:
    """A record as a person edits it."""
    return json.dumps(record, indent=2, ensure_ascii=False).encode() + b"\n"


def edited(text: bytes) -> bytes:
    """What a person makes of a text in their editor ($VISUAL, $EDITOR, else vi). Raises ApolloError."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="apollod-") as directory:
        file = Path(directory) / "example.json"
        file.write_bytes(text)
        done = _run(editor, str(file))
        if done != 0:
            raise ApolloError(f"{editor} ended with {done}", "nothing was changed; $EDITOR names another one")
        if (written := file.read_bytes()) == text:
            raise ApolloError("nothing was changed in it", "approve it, or leave it held")
        return written


def _run(editor: str, path: str) -> int:
    """$EDITOR may have arguments: the shell takes it apart, as git does."""
    return subprocess.run(["/bin/sh", "-c", f'{editor} "$@"', editor, path], check=False).returncode


def _kept(written: bytes) -> str:
    """A file that stays, with what somebody wrote and nobody took."""
    descriptor, path = tempfile.mkstemp(prefix="apollod-", suffix=".json")
    with open(descriptor, "wb") as file:
        file.write(written)
    return path


def _decide(args: argparse.Namespace, choice: Choice) -> int:
    """Exit code 1 if any of them came too late."""
    path = ctl.journal_path(args)
    ids = list(dict.fromkeys(example_ids.meant(path, example) for example in args.examples))
    wanted = [msg.DecisionWanted(id_, choice, args.reason) for id_ in ids]
    answer = ctl.ask(ctl.socket_path(args), msg.DecideRequest(wanted, by()))
    count = len(answer[DONE[choice]])
    ctl.show(args, answer, f"{count} {DONE[choice]}")
    for one in answer["refused"]:
        print(render.plain(f"apollod: {one['example']}: {one['why']}"), file=sys.stderr)
    return 1 if answer["refused"] else 0
