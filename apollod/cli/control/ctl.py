"""The verbs of `apollod ctl`, and what they share: common options, connections to the daemon and its journal.

Imports nothing that takes time: no anyio, no structlog, no aiosqlite.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from apollod.adapters.ipc.light_client import ask_status
from apollod.cli import commands, render
from apollod.cli.commands import Command
from apollod.errors import DaemonUnreachable

if TYPE_CHECKING:
    import msgspec

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


def socket_path(args: argparse.Namespace) -> str:
    """Address of the daemon: --socket, or from its configuration."""
    if args.socket:
        return str(args.socket)
    hint = "give --config FILE, --socket PATH, or set APOLLOD_CONFIG"
    return str(commands.configuration(args, "which daemon?", hint).socket_path)


def journal_path(args: argparse.Namespace) -> str:
    """The journal file: --file, the configuration's, or the daemon's answer."""
    if getattr(args, "file", None):
        return str(args.file)
    if args.config and not args.socket:
        return str(commands.configuration(args, "which daemon?").journal_path)
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


def tell(
    args: argparse.Namespace, request: "msgspec.Struct", text: Callable[[dict[str, Any]], render.Text],
    timeout_s: float = TIMEOUT_S,
) -> int:  # fmt: skip
    """Send one request to the daemon and print its answer, for people as `text` of it. Returns exit code 0."""
    answer = ask(socket_path(args), request, timeout_s)
    return render.show(args, answer, lambda: text(answer))


def telling(
    request: Callable[[argparse.Namespace], "msgspec.Struct"], text: Callable[[dict[str, Any]], render.Text],
    timeout_s: float = TIMEOUT_S,
) -> Run:  # fmt: skip
    """A function that runs a verb: it sends the request of its arguments, see `tell`."""
    return lambda args: tell(args, request(args), text, timeout_s)


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


# --- the verbs: one line each --------------------------------------------------------------------------------------


def _verb(name: str, module: str, text: str, add: str = "add") -> Command:
    return Command(name, text, f"apollod.cli.control.{module}", add)


VERBS = (
    _verb("status", "status_verb", "what the daemon is doing"),
    _verb("events", "journal", "facts from the journal, oldest first", "add_events"),
    _verb("query", "journal",
          "one read-only SQL statement on the journal (views: examples, steps, checkpoints, rollbacks, sources ...)",
          "add_query"),
    _verb("replay", "journal",
          "what the daemon knew at a moment: the journal, folded up to an event, as `status` shows it", "add_replay"),
    _verb("why", "examples.example",
          "from a step to what it learned from and what it made, or from an example to what became of it", "add_why"),
    _verb("journal", "journal", "the journal itself"),
    _verb("example", "examples.example",
          "the examples that were accepted: list, show, approve, decline, hold, edit, withdraw, forget"),
    _verb("queue", "training", "the examples that wait: show what is learned next, and why", "add_queue"),
    _verb("review", "examples.review",
          "decide about held examples on a screen: each with what speaks for and against it, and a key to press"),
    _verb("source", "source", "the files that examples come from: list, show, test, add, remove"),
    _verb("judge", "judge_verb",
          "who judges examples, how far it is trusted and where it was wrong: show; try it on planted cases: test"),
    _verb("pattern", "pattern", "what is learned by dreaming, and how far it is: list, show, add, retire, propose"),
    _verb("environment", "environment",
          "what gives prompts and scores answers, and how learning from that goes: list, show, pause, resume"),
    _verb("lease", "lease", "outside trainers that update the weights: list, show; end such an update: revoke"),
    _verb("dream", "dream", "what was dreamt, and why: list, show; dream now, or not: start, stop"),
    _verb("quality", "quality.quality_verb",
          "has the model become worse? measure it: run, baseline; what is known: report, incident list, incident "
          "show"),
    _verb("export", "examples.example", "examples as rows of TRL or OpenAI, or as ATIF trajectories, one a line",
          "add_export"),
    _verb("bootstrap", "bootstrap",
          "existing logs of agents, read and learned once, without the instructions that they followed"),
    _verb("teach", "teach",
          "teach a fact, or the right answer to a question, until the model knows it in other words, too; waits "
          "for it"),
    _verb("lesson", "lesson",
          "what was taught, and whether it is known: list, show; correct it, take it back, practise it: replace, "
          "forget, practise"),
    _verb("submit", "submit", "give lines of a JSONL file to the daemon, as if dropped into the inbox"),
    _verb("train", "submit",
          "give one example to the daemon, as POST /train does; it is learned with the rate of direct corrections",
          "add_train"),
    _verb("feedback", "submit",
          "say that an answer of the engine was good or bad, and what it should have been",
          "add_feedback"),
    _verb("schedule", "training", "when examples are learned, and what comes next: show", "add_schedule"),
    _verb("checkpoint", "training", "write weights and optimizer state to disk now", "add_checkpoint"),
    _verb("rollback", "training",
          "serve an earlier step's weights again, at once; what was learned since is taken back and stays away",
          "add_rollback"),
    _verb("relearn", "training",
          "learn examples after all whose steps were taken back by a rollback, or that were withdrawn",
          "add_relearn"),
    _verb("pause", "training", "finish the running step, then start no other; serving goes on", "add_pause"),
    _verb("resume", "training", "train again; also tries again what was given up", "add_resume"),
)  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 no daemon answers, 4 not permitted, "
        "5 the quality guard raised an alarm"
    )
    common_options(parser, first=True)
    commands.add(parser, VERBS, dest="verb", described=True)
