"""`apollod`: the parser and the way to each command. Commands are imported when they run: `ctl status` has 150 ms."""

import argparse
import os
import sys
from collections.abc import Sequence

from apollod import __version__
from apollod.cli import checkpoint_arguments, ctl_arguments, exits, numbers, render
from apollod.errors import ApolloError

EXAMPLES = """\
try it:     apollod demo                     a small model learns while it is served, on any Linux laptop
set it up:  apollod init ~/apollo            writes a configuration to fill in
run it:     apollod run --config ~/apollo/apollod.toml
teach it:   cp examples.jsonl ~/apollo/inbox/    or: apollod ctl submit examples.jsonl
            apollod ctl train --prompt "The light is kept by" --completion " Mara Quill." --wait
watch it:   apollod ctl status --watch       and what became of it: apollod ctl example list
"""

def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="apollod", description="One language model that keeps serving and keeps learning, in one copy of its weights.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="start the daemon in the foreground")
    _config_arguments(run)

    demo = commands.add_parser("demo", help="watch a served model learn, from nothing, in a few minutes")
    demo.add_argument("--dir", help="keep the demo's state here (default: a temporary directory)")
    demo.add_argument("--serve", action="store_true", help="leave it running afterwards, to play with")
    demo.add_argument("--port", type=int, default=0, help="port of the engine (default: a free one)")
    demo.add_argument("--seed", type=int, default=0, help="seed of the model and of the run")
    demo.add_argument("--json", action="store_true", help="only the result on standard output, as one JSON object")

    init = commands.add_parser("init", help="write a configuration to fill in, and its directories")
    init.add_argument("dir", help="directory for configuration, inbox and state")
    init.add_argument("--model", default="", help="a local Hugging Face model directory")
    init.add_argument("--json", action="store_true", help="one JSON object: the paths that were made")

    config = commands.add_parser("config", help="check or show the configuration")
    config_commands = config.add_subparsers(dest="verb", required=True, metavar="VERB")
    check = config_commands.add_parser("check", help="say whether it can be used, and what it takes")
    check.add_argument("--memory", action="store_true", help="what weights, optimizer and a step take in memory; nothing is loaded")
    check.add_argument("--device-gb", type=_gigabytes, metavar="GB", help="with --memory: of the GPU, 10^9 bytes; exit 1 if too few")
    check.add_argument("--json", action="store_true", help="one JSON object")
    _config_arguments(check)
    show = config_commands.add_parser("show", help="print every value in force, as TOML")
    show.add_argument("--json", action="store_true", help="one JSON object; secrets are left out, as in the TOML form")
    _config_arguments(show)

    _add_replay(commands.add_parser("replay", help="run recorded steps again, without a daemon, and prove the weights"))

    checkpoint_arguments.add(commands.add_parser("checkpoint", help="list, prove and export what can be gone back to; without a daemon"))

    version = commands.add_parser("version", help="print versions")
    version.add_argument("--json", action="store_true")

    ctl_arguments.add(commands.add_parser("ctl", help="ask or tell the running daemon"))
    return parser


def _gigabytes(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def _config_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", default=os.environ.get("APOLLOD_CONFIG"), help="TOML file ($APOLLOD_CONFIG)")
    parser.add_argument(
        "--set", metavar="SECTION.KEY=VALUE", action="append", default=[], dest="overrides", help="override one value; repeatable"
    )


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.add_argument(
        "--from", type=numbers.step, default=0, dest="first", metavar="STEP", help="a checkpoint's step; default 0: the base model"
    )
    replay.add_argument("--to", type=numbers.step, default=None, metavar="STEP", help="default: what is served")
    replay.add_argument("--out", metavar="DIR", help="write the weights there, as a Hugging Face directory")
    replay.add_argument("--without", nargs="+", default=[], metavar="EXAMPLE", help="as if these had never been learned")
    replay.add_argument("--config", metavar="FILE", default=os.environ.get("APOLLOD_CONFIG"), help="the daemon's TOML file")
    replay.add_argument("--journal", metavar="FILE", help="the journal or a copy of it, instead of --config")
    replay.add_argument("--model", metavar="DIR", help="start from this one: the unchanged base model, or an exported checkpoint")
    replay.add_argument("--json", action="store_true", help="one JSON object")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (DESIGN section 9)."""
    args = build_parser().parse_args(argv)
    try:
        code = _dispatch(args)
        sys.stdout.flush()  # here, where it can still be said that it failed
        return code
    except ApolloError as error:
        refused = error
    except BrokenPipeError:
        _drop_output()  # `| head` is no failure
        return 0
    except OSError as error:
        refused = exits.explain(error)
        if error.filename is None:  # it may have been the output, which Python would try to write once more
            _drop_output()
    except KeyboardInterrupt:
        return 130
    print(render.plain(f"apollod: {refused.line()}"), file=sys.stderr)
    return exits.code_of(refused)


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(args: argparse.Namespace) -> int:
    match args.command:
        case "ctl":
            from apollod.cli import ctl

            return ctl.run(args)
        case "run":
            from apollod.cli import daemon

            return daemon.run(args.config, args.overrides)
        case "replay":
            from apollod.cli import replay

            return replay.run(args)
        case "checkpoint":
            from apollod.cli import checkpoints

            return checkpoints.run(args)
        case "demo":
            from apollod.cli import demo

            return demo.run(args)
        case "init":
            from apollod.cli import setup

            return setup.init(args.dir, args.model, args.json)
        case "config":
            from apollod.cli import setup

            return setup.config(args)
    from apollod.cli import setup

    return setup.version(args.json, __version__)
