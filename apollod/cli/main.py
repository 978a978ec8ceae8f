"""`apollod`: the parser and the way to each command. Commands are imported when they run: `ctl status` has 150 ms."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from apollod import __version__
from apollod.cli import checkpoint_arguments, exits
from apollod.errors import ApolloError

STATES = ("pending", "trained", "rejected", "skipped", "held", "undone")

EXAMPLES = """\
try it:     apollod demo                     a small model learns while it is served, on any Linux laptop
set it up:  apollod init ~/apollo            writes a configuration to fill in
run it:     apollod run --config ~/apollo/apollod.toml
teach it:   cp examples.jsonl ~/apollo/inbox/    or: apollod ctl submit examples.jsonl
            apollod ctl train --prompt "The light is kept by" --completion " Mara Quill." --wait
watch it:   apollod ctl status --watch       and what became of it: apollod ctl example list
"""

TRAIN = """\
examples:
  apollod ctl train --prompt "The light is kept by" --completion " Mara Quill." --wait
  apollod ctl train --messages '[{"role": "user", "content": "Who keeps the light?"}, {"role": "assistant", "content": "Mara Quill."}]'

It is given what `ctl submit` gives line by line; `apollod ctl example show ID` tells what became of it.
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

    _add_ctl(commands.add_parser("ctl", help="ask or tell the running daemon"))
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


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
    replay.add_argument("--from", type=int, default=0, dest="first", metavar="STEP", help="a checkpoint's step; default 0: the base model")
    replay.add_argument("--to", type=int, default=None, metavar="STEP", help="default: what is served")
    replay.add_argument("--out", metavar="DIR", help="write the weights there, as a Hugging Face directory")
    replay.add_argument("--without", nargs="+", default=[], metavar="EXAMPLE", help="as if these had never been learned")
    replay.add_argument("--config", metavar="FILE", default=os.environ.get("APOLLOD_CONFIG"), help="the daemon's TOML file")
    replay.add_argument("--journal", metavar="FILE", help="the journal or a copy of it, instead of --config")
    replay.add_argument("--model", metavar="DIR", help="start from this one: the unchanged base model, or an exported checkpoint")
    replay.add_argument("--json", action="store_true", help="one JSON object")


def _add_ctl(ctl: argparse.ArgumentParser) -> None:
    ctl.epilog = "exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 no daemon answers, 4 not permitted"
    verbs = ctl.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str, of: Any = verbs) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = of.add_parser(name, help=text, description=text)
        parser.add_argument("--config", metavar="FILE", default=os.environ.get("APOLLOD_CONFIG"), help="the daemon's TOML file")
        parser.add_argument("--socket", metavar="PATH", help="the daemon's socket, instead of --config")
        parser.add_argument("--json", action="store_true", help="one JSON object")
        return parser

    status = verb("status", "what the daemon is doing")
    status.add_argument("--watch", action="store_true", help="again every second until interrupted")
    events = verb("events", "facts from the journal, oldest first")
    events.add_argument("--after", type=int, default=None, metavar="SEQ", help="start after this sequence number")
    events.add_argument("--kind", default=None, help="only this kind, e.g. step.completed")
    events.add_argument("--limit", type=_count, default=20, help="the last N (default 20); 0 for all")
    events.add_argument("--follow", action="store_true", help="go on as they come")
    events.add_argument("--jsonl", action="store_true", help="one JSON object a line")
    query = verb("query", "one read-only SQL statement on the journal (views: examples, steps, checkpoints, rollbacks, sources ...)")
    query.add_argument("sql", help="for example: SELECT step, loss FROM steps ORDER BY step DESC LIMIT 5")
    query.add_argument("--csv", action="store_true", help="comma-separated values with a header")
    query.add_argument("--limit", type=int, default=1000, help="rows at most (default 1000)")
    query.add_argument("--seconds", type=float, default=10.0, help="time limit (default 10)")
    replay = verb("replay", "what the daemon knew at a moment: the journal, folded up to an event, as `status` shows it")
    until = replay.add_mutually_exclusive_group()
    until.add_argument("--to", type=int, default=None, metavar="SEQ", help="up to this event (default: the last)")
    until.add_argument(
        "--at", default=None, metavar="STEP|TIME",
        help="right after the result of a step (12), or up to the last event of a time (2026-11-20T12:00:00Z; without a zone: local time)",
    )
    for parser in (events, query, replay):
        parser.add_argument("--file", help="a copy of the journal, instead of the running daemon's")
    why = verb("why", "from a step to what it learned from and what it made, or from an example to what became of it")
    why.add_argument("what", metavar="STEP|EXAMPLE", help="a step number, or an example's id or its first 6 or more digits")
    why.add_argument("--file", help="a copy of the journal, instead of the running daemon's")
    submit = verb("submit", "give lines of a JSONL file to the daemon, as if dropped into the inbox")
    submit.add_argument("file", help="JSONL file, or - for standard input; for a single example see `train`")
    submit.add_argument("--wait", action="store_true", help="return when they are learned")
    train = verb("train", "give one example to the daemon, as POST /train does; it is learned with the rate of direct corrections")
    train.epilog, train.formatter_class = TRAIN, argparse.RawDescriptionHelpFormatter
    shape = train.add_mutually_exclusive_group(required=True)
    shape.add_argument("--prompt", metavar="TEXT", help="context, with --completion")
    shape.add_argument("--text", help="plain text, all of it learned")
    shape.add_argument("--messages", metavar="JSON", help='a conversation: [{"role": "user", "content": ...}, {"role": "assistant", ...}]')
    train.add_argument("--completion", metavar="TEXT", help="what is learned to follow --prompt; mind the space between them")
    train.add_argument("--wait", action="store_true", help="return when it is learned; exit 1 if it is not")
    nouns = verbs.add_parser("example", help="the examples that were accepted: list, show", description="the examples that were accepted")
    actions = nouns.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = verb("list", "the newest examples in the order in which they are learned, and what became of them", actions)
    listed.add_argument("--state", choices=STATES, help="only those in this state")
    listed.add_argument("--limit", type=_count, default=20, metavar="N", help="the last N (default 20); 0 for all")
    shown = verb("show", "one example in full: what it says, where it came from, what became of it", actions)
    shown.add_argument("example", metavar="EXAMPLE", help="its id or its first 6 or more digits")
    nouns = verbs.add_parser("source", help="the files that were read: list", description="the files that were read")
    actions = nouns.add_subparsers(dest="action", required=True, metavar="ACTION")
    sources = verb("list", "every file seen in the inbox: how far it is read, and what became of its lines", actions)
    for parser in (listed, sources):
        parser.add_argument("--jsonl", action="store_true", help="one JSON object a line")
    for parser in (listed, shown, sources):
        parser.add_argument("--file", help="a copy of the journal, instead of the running daemon's")
    verb("checkpoint", "write weights and optimizer state to disk now")
    rollback = verb("rollback", "serve an earlier step's weights again, at once; what was learned since is taken back and stays away")
    rollback.add_argument(
        "--to", required=True, metavar="STEP|CHECKPOINT",
        help="a step on the way to the one that is served, 0 for the untrained weights, or a checkpoint's directory",
    )
    relearn = verb("relearn", "learn examples again whose steps were taken back by a rollback")
    relearn.add_argument("examples", nargs="+", metavar="EXAMPLE", help="ids; `ctl example list --state undone` has them")
    verb("pause", "finish the running step, then start no other; serving goes on")
    verb("resume", "train again; also tries again what was given up")
    journal = verb("journal", "the journal itself")
    journal.add_argument("action", choices=["verify"], help="verify: check the hash chain over every event")
    journal.add_argument("--file", help="a copy of the journal, instead of the running daemon's")
    journal.add_argument("--expect", metavar="HASH", help="fail unless this hash, noted earlier, is the head or an event before it")


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
    print(f"apollod: {refused.line()}", file=sys.stderr)
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
