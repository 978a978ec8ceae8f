"""Parts of every command line: tables of commands, shared options, bounded numbers, exit codes.

A table names the module of each command, which is imported when the command is used: `apollod --help` imports none of
them, `apollod ctl status` one. Its function `add(parser)` adds the arguments and sets the function that runs
(`set_defaults(run=...)`), which imports what loads slowly (numpy, anyio): `--help` and a wrong argument do not wait for
it.
"""

import argparse
import os
import re
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from apollod.errors import EXIT_CODES, ApolloError, ConfigError

if TYPE_CHECKING:
    from apollod.supervisor.config import Config

FAILED = 1
REFUSED_BY_GUARD = 5
"""Exit code of a command that was done and then raised an alarm of the quality guard."""
LIMIT_MAX = (1 << 31) - 2  # a cursor can be asked for one row more
COUNT_MAX = (1 << 63) - 1  # of events and steps: what a column of SQLite holds


class Command(NamedTuple):
    """A line of the table. `add`: the function of `module` that adds the arguments."""

    name: str
    help: str
    module: str
    add: str = "add"


class Parser(argparse.ArgumentParser):
    """A parser that answers an unknown flag with its own usage; argparse would show that of the whole program."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Called by argparse for the chosen subcommand, also for `--help`."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


class Deferred(argparse.ArgumentParser):
    """Stands for the parser of a command until the command is used: two dozen parsers take longer to make than the
    rest of a command line takes to read. `add` of `module` gives it its arguments."""

    def __init__(self, *, module: str, add: str, **kwargs: Any) -> None:  # the base is not made: it is what takes long
        self._module, self._add, self._kwargs = module, add, kwargs

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Called by argparse for the chosen subcommand."""
        parser = Parser(**self._kwargs)
        getattr(import_module(self._module), self._add)(parser)
        return parser.parse_known_args(args, namespace)


def add(parser: argparse.ArgumentParser, table: Iterable[Command], dest: str, described: bool) -> None:
    """Add the commands of a table. `dest`: their name in messages. `described`: their own --help begins with the line
    of help."""
    commands = parser.add_subparsers(dest=dest, required=True, metavar=dest.upper(), parser_class=Deferred)
    for one in table:
        text = one.help if described else None
        commands.add_parser(one.name, help=one.help, description=text, module=one.module, add=one.add)


def code_of(error: ApolloError) -> int:
    """Exit code of a command that ends with this error (docs/design.md, section 9)."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), FAILED)


# --- options that several commands have ---------------------------------------------------------------------------


def epilog(parser: argparse.ArgumentParser, text: str, description: str | None = None) -> None:
    """Add text that --help prints as it stands; `description` replaces the line of help."""
    parser.epilog, parser.formatter_class = text, argparse.RawDescriptionHelpFormatter
    parser.description = description or parser.description


def from_environment() -> str | None:
    """Configuration file to take if no option names one."""
    return os.environ.get("APOLLOD_CONFIG")


def config_file(
    parser: argparse.ArgumentParser, text: str = "the daemon's TOML file", default: str | None = ""
) -> None:
    """--config. `default`: value if the option is absent; empty: the file that the environment names."""
    parser.add_argument("--config", metavar="FILE", default=from_environment() if default == "" else default, help=text)


def configuration(
    args: argparse.Namespace, missing: str, hint: str = "give --config FILE, or set APOLLOD_CONFIG"
) -> "Config":
    """The daemon's configuration. Raises ConfigError with `missing` if no option and no variable names one."""
    if not args.config:
        raise ConfigError(missing, hint)
    from apollod.supervisor.config import load_config

    return load_config(args.config)


def whole_config(parser: argparse.ArgumentParser) -> None:
    """--config, and --set for single values."""
    config_file(parser, "TOML file ($APOLLOD_CONFIG)")
    parser.add_argument(
        "--set", metavar="SECTION.KEY=VALUE", action="append", default=[], dest="overrides",
        help="override one value; repeatable",
    )  # fmt: skip


def as_json(parser: argparse.ArgumentParser, text: str = "one JSON object") -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help=text)


def limited(
    parser: argparse.ArgumentParser, default: int = 20, text: str = "the last N (default 20); 0 for all"
) -> None:
    """--limit of a list."""
    parser.add_argument("--limit", type=limit, default=default, metavar="N", help=text)


# --- whole numbers, bounded where they are parsed: SQLite and Python can count with them -------------------------


def limit(text: str) -> int:
    """A number; 0 may stand for all."""
    return _whole(text, LIMIT_MAX, f"a limit of {text} is none")


def event(text: str) -> int:
    """A sequence number; 0 is before the first event."""
    return _whole(text, COUNT_MAX, f"there is no event {text}")


def step(text: str) -> int:
    """A step; 0 is before the first one."""
    return _whole(text, COUNT_MAX, f"there is no step {text}")


def _whole(text: str, most: int, otherwise: str) -> int:
    """Raises ArgumentTypeError, which argparse reports with exit code 2."""
    if not re.fullmatch(r"[0-9]{1,19}", text) or (value := int(text)) > most:
        raise argparse.ArgumentTypeError(f"{otherwise}; give a whole number from 0 to {most}")
    return value
