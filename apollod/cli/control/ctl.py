"""Shared by all verbs: their common options, connections to the daemon and its journal, and the form of an answer.

Imports nothing that takes time: no anyio, no structlog, no aiosqlite.
"""

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from apollod.adapters.ipc.status_client import ask_status
from apollod.cli import commands, render
from apollod.errors import ConfigError

if TYPE_CHECKING:
    import msgspec

    from apollod.wire import status as st

CHECKPOINT_TIMEOUT_S = 3600.0
"""a large model takes minutes to write"""

TIMEOUT_S = 10.0
"""for anything else"""

Run = Callable[[argparse.Namespace], int]


def common_options(parser: argparse.ArgumentParser, first: bool = False) -> None:
    """What is taken by every verb, and before it too. `first`: the parser that comes first, which has the defaults; a
    default of a later one would overwrite what was given before."""
    commands.config_file(parser, default=commands.from_environment() if first else argparse.SUPPRESS)
    parser.add_argument(
        "--socket",
        metavar="PATH",
        default=None if first else argparse.SUPPRESS,
        help="the daemon's socket, instead of --config",
    )
    parser.add_argument(
        "--json", action="store_true", default=False if first else argparse.SUPPRESS, help="one JSON object"
    )


def options(parser: argparse.ArgumentParser, run: Run) -> None:
    """The common options of a verb, and what runs it."""
    common_options(parser)
    parser.set_defaults(run=run)


def of_a_copy(parser: argparse.ArgumentParser) -> None:
    """--file, for verbs that only read the journal."""
    parser.add_argument("--file", help="a copy of the journal, instead of the running daemon's")


def jsonl(parser: argparse.ArgumentParser) -> None:
    """--jsonl, for verbs whose answer is a list."""
    parser.add_argument("--jsonl", action="store_true", help="one JSON object a line")


def actions(
    noun: argparse.ArgumentParser, *told: tuple[str, str, Run], nested: bool = False
) -> list[argparse.ArgumentParser]:
    """The actions of a noun (name, help, what runs it), each with the options of a verb, which the noun takes too.
    `nested`: it is an action itself, and has them."""
    if not nested:
        common_options(noun)
    of_noun = noun.add_subparsers(dest="nested_action" if nested else "action", required=True, metavar="ACTION")
    parsers: list[argparse.ArgumentParser] = []
    for name, text, run in told:
        parser = of_noun.add_parser(name, help=text, description=text)
        options(parser, run)
        parsers.append(parser)
    return parsers


def socket_path(args: argparse.Namespace) -> str:
    """Where the daemon listens: --socket, or from its configuration."""
    if args.socket:
        return str(args.socket)
    if not args.config:
        raise ConfigError("which daemon?", "give --config FILE, --socket PATH, or set APOLLOD_CONFIG")
    from apollod.supervisor.config import load_config

    return str(load_config(args.config).socket_path)


def journal_path(args: argparse.Namespace) -> str:
    """The journal file: --file, the configuration's, or what the daemon says."""
    if getattr(args, "file", None):
        return str(args.file)
    if args.config and not args.socket:
        from apollod.supervisor.config import load_config

        return str(load_config(args.config).journal_path)
    return status(socket_path(args)).journal.path


def ask(path: str, request: "msgspec.Struct", timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """One question to the daemon at this socket; see `control_client.ask`."""
    from apollod.adapters.ipc import control_client  # here for start-up time, for what asks the status only

    return control_client.ask(path, request, timeout_s)


def status(path: str) -> "st.Status":
    """What the daemon at this socket is doing."""
    from apollod.wire import status as st

    return st.read(ask_status(path))


def show(args: argparse.Namespace, answer: dict[str, Any], text: str) -> None:
    """Print an answer: as the object that it is, or in words."""
    print(json.dumps(answer) if args.json else render.plain(text))
