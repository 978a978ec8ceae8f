"""`apollod ctl bootstrap`: existing logs, read and learned once."""

import argparse
import os
from typing import Any, get_args

import msgspec

from apollod.adapters.ipc.light_client import ask_status
from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.core.facts.intake.events import StripLevel
from apollod.core.settings import Check
from apollod.errors import ApolloError, ConfigError
from apollod.wire import control_messages as msg

WAIT_S = 0.5

EPILOG = """\
examples:
  apollod ctl bootstrap ~/.claude/projects --model '*' --dry-run
  apollod ctl bootstrap ~/.claude/projects --model '*' --strip system --wait
  apollod ctl bootstrap ~/old-logs --pattern ask-first

Each answer is learned once, without the instructions that are stripped. A source that was stopped, or that grew, goes
on where it was when it is asked for again by the same rules.
"""


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    commands.epilog(parser, EPILOG)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("source", nargs="?", metavar="SOURCE", help="a log, a directory of them, or an agent's database")
    what.add_argument("--status", action="store_true", help="how far the one is that is under way, or was last")
    what.add_argument("--stop", action="store_true", help="read no more of it; what waits already is learned")
    parser.add_argument("--dry-run", action="store_true", help="say what would be learned; needs no daemon")
    rule = parser.add_mutually_exclusive_group()
    rule.add_argument("--strip", choices=get_args(StripLevel), default="system", help="what is taken out (default: "
                      "system)")  # fmt: skip
    rule.add_argument("--pattern", default="", metavar="NAME", help="take out the instruction of this pattern, "
                      "and learn only what was said with it and passes its check")  # fmt: skip
    parser.add_argument(
        "--strip-pattern", action="append", default=[], metavar="REGEX", help="take out what it matches; repeatable"
    )
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="learn answers of this model (default: the served "
        "one), * for everybody's; repeatable",
    )  # fmt: skip
    parser.add_argument("--sidechains", action="store_true", help="learn also what agents did that another one started")
    parser.add_argument("--format", default="auto", metavar="NAME", help="of its files (default: by their content)")
    parser.add_argument("--tier", choices=("bulk", "direct"), default="bulk", help="with which rate (default: bulk)")
    parser.add_argument("--review", default="auto", metavar="RULE", help="auto, hold or sample:0.1: does an example "
                        "wait for a decision?")  # fmt: skip
    parser.add_argument("--wait", action="store_true", help="return when all of it is learned")


def _run(args: argparse.Namespace) -> int:
    if args.status:
        return _status(args)
    if args.stop:
        return _stop(args)
    return _dry_run(args) if args.dry_run else _begin(args)


def _path(args: argparse.Namespace) -> str:
    """Absolute path of the source. Raises ConfigError."""
    path: str = os.path.abspath(os.path.expanduser(args.source))
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the name {path!r} is not UTF-8", "name a directory above it") from error
    return path


def _request(args: argparse.Namespace) -> msg.BootstrapRequest:
    """With a pattern only its instruction is taken out. Raises ConfigError."""
    return msg.BootstrapRequest(
        path=_path(args), by=ctl.by(), models=args.model, strip="none" if args.pattern else args.strip,
        strip_patterns=args.strip_pattern, sidechains=args.sidechains, format=args.format, tier=args.tier,
        review=args.review, pattern=args.pattern,
    )  # fmt: skip


def _pattern(args: argparse.Namespace) -> tuple[str, Check | None]:
    """Instruction and check of the pattern of a dry run, from the configuration, or from the journal for one that was
    added to the daemon. Raises ConfigError."""
    if not args.pattern:
        return "", None
    if not args.config:
        raise ConfigError(
            f"there is no pattern {args.pattern} without a configuration",
            "name the file that has it with --config, or whose journal has it, if it was added with `apollod ctl "
            "pattern add`",
        )
    from apollod.cli.control.pattern import folded
    from apollod.supervisor.config import load_config

    config = load_config(args.config)
    patterns = {one.name: (one.instruction, one.check) for one in config.dream.pattern}
    if args.pattern not in patterns and config.journal_path.exists():
        found = folded(str(config.journal_path))["patterns"]
        patterns |= {one["name"]: (one["instruction"], msgspec.convert(one["check"], Check)) for one in found}
    if args.pattern not in patterns:
        raise ConfigError(
            f"there is no pattern {args.pattern} in {args.config} or its journal", "`apollod ctl pattern list` has them"
        )
    return patterns[args.pattern]


def _dry_run(args: argparse.Namespace) -> int:
    from apollod.cli.control import bootstrap_dry_run  # reads logs, which takes time to import
    from apollod.core.facts.bootstrap import BootstrapRequested
    from apollod.core.kernel.composing import composed
    from apollod.supervisor.bootstrapping import section_of

    instruction, check = _pattern(args)
    request = _request(args)
    wanted = composed(
        BootstrapRequested, request, models=tuple(request.models), strip_patterns=tuple(request.strip_patterns),
        instruction=instruction, check=check,
    )  # fmt: skip
    try:
        section_of(wanted)
    except ValueError as error:
        raise ConfigError(str(error), "see `apollod ctl bootstrap --help`") from error
    return bootstrap_dry_run.run(args, wanted)


def _begin(args: argparse.Namespace) -> int:
    """Begin, or with --wait also follow to the end: exit code 1 unless all was read."""
    socket = ctl.socket_path(args)
    answer = ctl.ask(socket, _request(args))
    for place in answer["watched"]:
        render.say(
            f"{place} is watched, too: what it has given already counts as duplicates here, and the other way round"
        )
    if not args.wait:
        begun = "is under way already" if answer["under_way"] else "is being read"
        if answer.get("goes_on"):
            begun = f"goes on where it was, {render.bootstrap_text(answer['bootstrap'])}"
        return render.show(
            args, answer, f"{answer['path']} {begun}; `apollod ctl bootstrap --status` says how far it is"
        )
    over = _until_over(socket)
    render.show(args, {"bootstrap": over}, _text(over))
    if over["dropped"] and not over["accepted"] and not over["duplicates"]:
        render.say(
            f"nothing was learned; `apollod ctl source show {over['path']}` says why; --model '*' takes everybody's"
        )
    return 0 if over["state"] == "completed" else 1


def _status(args: argparse.Namespace) -> int:
    found = ask_status(ctl.socket_path(args)).get("bootstrap")
    text = _text(found) if found else "there was none"
    return render.show(args, {"bootstrap": found}, text)


def _stop(args: argparse.Namespace) -> int:
    stopped = "asked for again it goes on from here"
    return ctl.tell(args, msg.BootstrapStopRequest(ctl.by()), lambda a: f"{_text(a['bootstrap'])}; {stopped}")


def _text(b: dict[str, Any]) -> str:
    why = f" ({b['reason']})" if b["reason"] else ""
    lost = "".join(f", {b[name]} {name}" for name in ("dropped", "rejected", "held") if b[name])
    names = f"; {b.get('unread')} files could not be read: `apollod ctl events --kind bootstrap.read` names them"
    unread = names if b.get("unread") else ""
    return f"{b['path']}: {b['state']}{why}, {render.bootstrap_text(b)}{lost}{unread}{_tested(b)}"


def _tested(b: dict[str, Any]) -> str:
    """State and figures of the pattern that a bootstrap teaches."""
    if not b.get("pattern"):
        return ""
    name, tests = b["pattern"], b["pattern_tests"]
    if tests is None:
        return f"; {name} is not tested yet: `apollod ctl pattern show {name}` says what for"
    passed = ", ".join(f"{mode} {of[0]} of {of[1]}" for mode, of in tests.items())
    return f"; {name} is {b['pattern_state']}, of its held-out scenarios pass: {passed}"


def _until_over(path: str) -> dict[str, Any]:
    """Follow the bootstrap of the daemon at this socket, with progress on a terminal; returns its object in the status.
    Raises ApolloError if the daemon cannot go on with it."""

    def over(status: dict[str, Any]) -> bool:
        state = status["bootstrap"]["state"]
        if state not in ("reading", "learning"):
            return True
        helpless = status["state"] == "degraded" and state == "learning"  # reading needs no engine
        if helpless or status["state"] == "stopping":
            raise ApolloError(
                f"the daemon is {status['state']}: {status['error'] or 'on request'}",
                "nothing is lost: the bootstrap goes on with the daemon; see `apollod ctl status`",
            )
        return False

    status = ctl.waited(
        lambda: ask_status(path), over, lambda status: render.bootstrap_text(status["bootstrap"]), WAIT_S
    )
    return dict(status["bootstrap"])
