"""Commands as lines of a table: a name, a line of help, and the module that is imported when the command is used.

So `apollod --help` imports none of them and `apollod ctl status` one. Such a module has one function,
`add(parser)`: it gives the parser its arguments and, with `set_defaults(run=...)`, the function that runs it. What
takes long to import (numpy, anyio) is imported by that function, since `--help` and a mistyped argument should not wait
for it.
"""

import argparse
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A line of the table. `module` has `add`."""

    name: str
    help: str
    module: str


class Parser(argparse.ArgumentParser):
    """A parser that answers an unknown flag with its own usage; argparse would show that of the whole program."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What argparse calls for the subcommand that was chosen; `--help` comes this way, too."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


class Deferred(argparse.ArgumentParser):
    """Stands for the parser of a command until the command is used: two dozen parsers take longer to make than the
    rest of a command line takes to read. `module` gives it its arguments."""

    def __init__(self, *, module: str, **kwargs: Any) -> None:  # the base is not made: it is what takes long
        self._module, self._kwargs = module, kwargs

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What argparse calls for the subcommand that was chosen."""
        parser = Parser(**self._kwargs)
        import_module(self._module).add(parser)
        return parser.parse_known_args(args, namespace)


def add(parser: argparse.ArgumentParser, table: Iterable[Command], dest: str, described: bool) -> None:
    """Add the commands of a table. `dest`: what they are called in messages. `described`: their own --help begins
    with the line of help."""
    commands = parser.add_subparsers(dest=dest, required=True, metavar=dest.upper(), parser_class=Deferred)
    for command in table:
        description = command.help if described else None
        commands.add_parser(command.name, help=command.help, description=description, module=command.module)
