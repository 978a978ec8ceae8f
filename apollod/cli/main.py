"""`apollod`: the table of its commands, and how each of them ends."""

import os
import sys
from collections.abc import Sequence

from apollod.cli import commands, render
from apollod.cli.commands import Command
from apollod.errors import ApolloError

EXAMPLES = """\
try it:     apollod demo                     a small model learns while it is served, on any Linux laptop
set it up:  apollod init ~/apollo            writes a configuration to fill in
run it:     apollod run --config ~/apollo/apollod.toml
teach it:   cp examples.jsonl ~/apollo/inbox/    or: apollod ctl submit examples.jsonl
            apollod ctl train --prompt "The light is kept by" --completion " Mara Quill." --wait
watch it:   apollod ctl status --watch       and what became of it: apollod ctl example list
"""

COMMANDS = (
    Command("run", "start the daemon in the foreground", "apollod.cli.run_command"),
    Command(
        "demo", "watch a served model learn, from nothing, in a few minutes", "apollod.cli.run_command", "add_demo"
    ),
    Command("init", "write a configuration to fill in, and its directories", "apollod.cli.config_command", "add_init"),
    Command("config", "check or show the configuration", "apollod.cli.config_command"),
    Command(
        "replay", "run recorded steps again, without a daemon, and prove the weights", "apollod.cli.replay_command"
    ),
    Command(
        "checkpoint",
        "list, prove and export what can be gone back to; without a daemon",
        "apollod.cli.checkpoint_command",
    ),
    Command("version", "print versions", "apollod.cli.run_command", "add_version"),
    Command("ctl", "ask or tell the running daemon", "apollod.cli.control.ctl"),
)


def build_parser() -> commands.Parser:
    """Parser of the whole command line."""
    parser = commands.Parser(
        prog="apollod",
        description="One language model that keeps serving and keeps learning, in one copy of its weights.",
    )
    commands.epilog(parser, EXAMPLES)
    commands.add(parser, COMMANDS, dest="command", described=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (docs/design.md, section 9)."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()  # here, where it can still be said that it failed
        return code
    except ApolloError as error:
        refused = error
    except BrokenPipeError:
        _drop_output()  # `| head` is no failure
        return 0
    except OSError as error:
        from apollod.explain import explain  # here for start-up time: most commands succeed

        refused = explain(error)
        if error.filename is None:  # it may have been the output, which Python would try to write once more
            _drop_output()
    except KeyboardInterrupt:
        return 130
    print(render.plain(f"apollod: {refused.line()}"), file=sys.stderr)
    return commands.code_of(refused)


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
