"""Shared by all verbs: their common options, connections to the daemon and its journal, and the form of an answer.

Imports nothing that takes time: no anyio, no structlog, no aiosqlite.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from apollod.adapters.ipc.light_client import ask_status
from apollod.cli import commands, render
from apollod.errors import ConfigError, DaemonUnreachable

if TYPE_CHECKING:
    import msgspec

    from apollod.supervisor.config import Config
    from apollod.wire import status as st

CHECKPOINT_TIMEOUT_S = 3600.0
"""Timeout of requests that read or write all weights, which takes minutes for a large model."""

TIMEOUT_S = 10.0
"""Timeout of other requests."""

Run = Callable[[argparse.Namespace], int]
Add = Callable[[argparse.ArgumentParser], object]
"""Adds arguments to a parser."""
Action = tuple[str, str, Run, *tuple[Add, ...]]
"""A line of the table of a noun: name, help, the function that runs it, and its arguments."""
Text = str | Sequence[str]
Look = TypeVar("Look")


def common_options(parser: argparse.ArgumentParser, first: bool = False) -> None:
    """Options that every verb takes, also before its name. `first`: the outer parser, which has the defaults; a default
    of an inner one would overwrite a value given before."""
    commands.config_file(parser, default=commands.from_environment() if first else argparse.SUPPRESS)
    absent = None if first else argparse.SUPPRESS
    parser.add_argument("--socket", metavar="PATH", default=absent, help="the daemon's socket, instead of --config")
    parser.add_argument(
        "--json", action="store_true", default=False if first else argparse.SUPPRESS, help="one JSON object"
    )


def options(parser: argparse.ArgumentParser, run: Run) -> None:
    """Add the common options of a verb, and the function that runs it."""
    common_options(parser)
    parser.set_defaults(run=run)


def of_a_copy(parser: argparse.ArgumentParser) -> None:
    """--file, for verbs that only read the journal."""
    parser.add_argument("--file", help="a copy of the journal, instead of the running daemon's")


def jsonl(parser: argparse.ArgumentParser) -> None:
    """--jsonl, for verbs whose answer is a list."""
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a line")


def actions(noun: argparse.ArgumentParser, *table: Action, nested: bool = False) -> None:
    """Add the actions of a noun, each with the options of a verb, which the noun takes too. `nested`: the noun is an
    action itself, and has them."""
    if not nested:
        common_options(noun)
    of_noun = noun.add_subparsers(dest="nested_action" if nested else "action", required=True, metavar="ACTION")
    for name, text, run, *arguments in table:
        parser = of_noun.add_parser(name, help=text, description=text)
        options(parser, run)
        for add in arguments:
            add(parser)


def argument(*names: str, **kwargs: Any) -> Add:
    """A function that adds this argument, for a line of a table of actions."""
    return lambda parser: parser.add_argument(*names, **kwargs)


def configuration(
    args: argparse.Namespace, missing: str, hint: str = "give --config FILE, or set APOLLOD_CONFIG"
) -> "Config":
    """The daemon's configuration. Raises ConfigError with `missing` if no option and no variable names one."""
    if not args.config:
        raise ConfigError(missing, hint)
    from apollod.supervisor.config import load_config

    return load_config(args.config)


def socket_path(args: argparse.Namespace) -> str:
    """Address of the daemon: --socket, or from its configuration."""
    if args.socket:
        return str(args.socket)
    hint = "give --config FILE, --socket PATH, or set APOLLOD_CONFIG"
    return str(configuration(args, "which daemon?", hint).socket_path)


def journal_path(args: argparse.Namespace) -> str:
    """The journal file: --file, the configuration's, or the daemon's answer."""
    if getattr(args, "file", None):
        return str(args.file)
    if args.config and not args.socket:
        return str(configuration(args, "which daemon?").journal_path)
    return status(socket_path(args)).journal.path


def ask(path: str, request: "msgspec.Struct", timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Send one request to the daemon at this socket; see `channel.ask`."""
    from apollod.adapters.ipc import channel  # here for start-up time, for what asks the status only

    return channel.ask(path, request, timeout_s)


def ask_or_fold(
    args: argparse.Namespace, request: "msgspec.Struct", folded: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """The daemon's answer; or the one `folded` from a journal: that of --file, or of the configuration if its daemon
    does not run."""
    if not args.file:
        try:
            return ask(socket_path(args), request)
        except DaemonUnreachable:
            if not args.config or args.socket:
                raise
    return folded(journal_path(args))


def status(path: str) -> "st.Status":
    """Status of the daemon at this socket."""
    return read_status(ask_status(path))


def read_status(answer: dict[str, Any]) -> "st.Status":
    """The status that an answer of the daemon is."""
    from apollod.wire import status as st

    return st.read(answer)


def by() -> str:
    """The user who decides, as the journal names them."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in this container
        return f"uid {os.getuid()}"


def show(args: argparse.Namespace, answer: Mapping[str, Any], text: Text | Callable[[], Text]) -> int:
    """Print an answer: with --json the object itself, else its text or lines, made safe for a terminal. A function is
    called only where its text is needed. Returns exit code 0."""
    if args.json:
        print(json.dumps(answer))
        return 0
    text = text() if callable(text) else text
    print(render.plain(text if isinstance(text, str) else "\n".join(text)))
    return 0


def tell(
    args: argparse.Namespace, request: "msgspec.Struct", text: Callable[[dict[str, Any]], Text],
    timeout_s: float = TIMEOUT_S,
) -> int:  # fmt: skip
    """Send one request to the daemon and print its answer, for people as `text` of it. Returns exit code 0."""
    answer = ask(socket_path(args), request, timeout_s)
    return show(args, answer, lambda: text(answer))


def waited(
    look: Callable[[], Look], over: Callable[[Look], object], progress: Callable[[Look], str], every_s: float
) -> Look:
    """Look until it is over, with a line of progress on a terminal. Returns what was seen last."""
    try:
        while True:
            seen = look()
            render.progress(progress(seen))
            if over(seen):
                return seen
            time.sleep(every_s)
    finally:
        if os.isatty(2):
            print(file=sys.stderr)
