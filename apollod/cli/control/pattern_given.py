"""Patterns from the arguments of `pattern add`, and as TOML from stripped texts (`pattern propose`)."""

import argparse
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from apollod.adapters.journal.journal_reader import stream
from apollod.cli import commands, render
from apollod.cli.control import ctl, rows
from apollod.cli.render import toml_value
from apollod.core.facts.dreams.patterns import pattern_problem
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import SURROUNDING_KINDS
from apollod.errors import ConfigError
from apollod.explain import reason

if TYPE_CHECKING:
    from apollod.curation.dreaming.proposals import Proposal, Proposals

VIEW = "view:"
_DEFAULT = PatternSettings("", "")


EPILOG = """\
examples:
  apollod ctl pattern add greet --instruction 'Begin with a greeting.' --regex '^(Hello|Hi)'
  apollod ctl pattern add ask --instruction-file ask.md --seed ~/notes/lessons.md \\
      --contrast 'You are in autopilot: act at once.' --rubric 'One question, no list.'

A name that is there already with another definition begins anew. Relative paths are of the directory where you are.
A command gets {"messages", "answer"} as JSON on its standard input; exit code 0 says that the behaviour shows, 1 that
it does not.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that define a pattern."""
    commands.epilog(parser, EPILOG)
    parser.add_argument("name", metavar="NAME", help="small letters, digits, - and _")
    told = parser.add_mutually_exclusive_group(required=True)
    told.add_argument("--instruction", metavar="TEXT", help="the text that should become unnecessary")
    told.add_argument("--instruction-file", metavar="FILE", help="the same from a file; - for standard input")
    parser.add_argument(
        "--seed", action="append", default=[], metavar="PLACE", help="what scenarios are imagined from: a file, a "
        "directory, or a view of the journal such as view:signals; repeatable",
    )  # fmt: skip
    check = parser.add_mutually_exclusive_group()
    check.add_argument("--regex", metavar="REGEX", help="the behaviour shows in an answer in which this is found")
    check.add_argument("--schema", metavar="FILE", help="... that follows this JSON schema")
    check.add_argument("--command", metavar="COMMAND", help="... for which this exits 0; JSON comes on its stdin")
    check.add_argument("--rubric", metavar="TEXT", help="what the judge is told besides the instruction (without a "
                       "check it judges by the instruction alone)")  # fmt: skip
    parser.add_argument(
        "--contrast", action="append", default=[], metavar="TEXT", help="a system message under which the behaviour "
        "would be wrong; repeatable (default: one that takes the instruction back)",
    )  # fmt: skip
    parser.add_argument(
        "--objective", choices=("sft", "context"), help=f"how a good answer is learned (default {_DEFAULT.objective})"
    )
    parser.add_argument(
        "--surrounding", action="append", choices=SURROUNDING_KINDS, metavar="KIND",
        help=f"what stands before the requests that are practised and tested, one of {', '.join(SURROUNDING_KINDS)}; "
        "repeatable (default: those of [dream])",
    )  # fmt: skip
    passes, of = _DEFAULT.settle
    parser.add_argument(
        "--settle", type=_settle, metavar="N/M", help=f"so many of the last M new scenarios (default {passes}/{of})"
    )
    parser.add_argument(
        "--held-out", type=commands.limit, metavar="N", help=f"scenarios only for tests (default {_DEFAULT.held_out})"
    )
    parser.add_argument(
        "--situations", type=commands.limit, metavar="N", help="others only for tests, in which the behaviour would be "
        "wrong although nobody says so; needs an imagination that can write them (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--dreams", type=commands.limit, metavar="N", help=f"practices at most (default {_DEFAULT.dreams}); 0: no limit"
    )
    parser.add_argument(
        "--tokens", type=commands.limit, metavar="N", help="of all its calls at most (default: no limit)"
    )
    parser.add_argument(
        "--days", type=float, metavar="D",
        help=f"on which it is dreamt of, after which it is given up (default {_DEFAULT.days:g}); 0: never",
    )  # fmt: skip


def pattern_of(args: argparse.Namespace) -> PatternSettings:
    """The pattern of the arguments, with paths that mean the same to the daemon. Raises ConfigError."""
    given: dict[str, Any] = {"name": args.name, "instruction": _instruction(args)}
    given |= {"seeds": [_place(place) for place in args.seed], "contrast": args.contrast, "check": _check(args)}
    if args.surrounding is not None:
        given["surroundings"] = args.surrounding
    for name in ("objective", "settle", "held_out", "situations", "dreams", "tokens", "days"):
        if getattr(args, name) is not None:
            given[name] = getattr(args, name)
    try:
        pattern = msgspec.convert(given, PatternSettings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{args.name}: {error}", "see `apollod ctl pattern add --help`") from error
    if why := pattern_problem(pattern):
        raise ConfigError(f"{args.name}: {why}", "see `apollod ctl pattern add --help`")
    return pattern


def _instruction(args: argparse.Namespace) -> str:
    file: str | None = args.instruction_file
    if file is None:
        return str(args.instruction)
    try:
        text = sys.stdin.read() if file == "-" else Path(file).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--instruction-file {file} is not UTF-8 text", "save it as UTF-8") from error
    except OSError as error:
        raise ConfigError(
            f"--instruction-file {file} cannot be read: {reason(error)}", "check path and owner"
        ) from error
    return text.removesuffix("\n")


def _check(args: argparse.Namespace) -> dict[str, Any]:
    """The check of the arguments. Raises ConfigError for a command that a shell could not split."""
    if args.command is None:
        schema = {"schema": _absolute(args.schema)} if args.schema else {}
        return schema | {name: getattr(args, name) for name in ("regex", "rubric") if getattr(args, name)}
    try:
        words = shlex.split(args.command)
    except ValueError as error:
        raise ConfigError(f"--command {args.command!r}: {error}", "quote it as for a shell") from error
    if not words:
        raise ConfigError("--command is empty", "name a program and its arguments")
    return {"command": [_absolute(words[0]) if "/" in words[0] else words[0], *words[1:]]}


def _place(place: str) -> str:
    return place if place.startswith(VIEW) or not place.strip() else _absolute(place)


def _absolute(path: str) -> str:
    """A path for the daemon, whose directory is another; a directory keeps its slash."""
    slash = "/" if path.endswith("/") and path.strip("/") else ""
    return os.path.abspath(os.path.expanduser(path)) + slash


def _settle(text: str) -> list[int]:
    """Raises ArgumentTypeError, which argparse reports."""
    if not re.fullmatch(r"[0-9]{1,6}/[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no N/M; 4/5 means four of the last five")
    passes, _, of = text.partition("/")
    return [int(passes), int(of)]


SECONDS = 120.0
_LEARNED = "SELECT id FROM examples WHERE state = 'trained'"
_STRIPPED = """
    SELECT key, body ->> '$.removed', coalesce(nullif(body ->> '$.origin.session', ''), body ->> '$.source') FROM events
    WHERE kind = 'example.accepted' AND body ->> '$.source' NOT LIKE 'dream:%'
      AND json_array_length(body, '$.removed') > 0
    ORDER BY seq
"""
_PATTERNS = "SELECT key, body ->> '$.pattern.instruction' FROM events WHERE kind = 'pattern.added' ORDER BY seq"


def propose_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pattern propose`."""
    commands.limited(parser, 5, "at most N (default 5); 0 for all")
    parser.add_argument(
        "--learned", type=commands.limit, default=3, metavar="N", help="of at least N learned examples (default 3)"
    )
    ctl.of_a_copy(parser)


def propose(args: argparse.Namespace) -> int:
    """Print proposals. Nothing is begun, and no byte of the journal changes."""
    from apollod.curation.dreaming.proposals import name_for

    proposals, taken = _counted(ctl.journal_path(args))
    found = []
    for one in proposals.most(args.learned, args.limit):
        name = name_for(one.text, taken)
        taken.append(name)
        found.append(_object(one, name))
    if args.json:
        render.print_object({"proposals": found, "too_long": proposals.too_long})
        return 0
    print("\n\n".join(one["toml"] for one in found), end="\n" if found else "")
    if not found:
        render.say(
            f"nothing was stripped from {args.learned} learned examples or more that is no pattern yet; `strip` of "
            "[[watch]], and `apollod ctl bootstrap --strip`, say what is stripped"
        )
    return 0


def _counted(path: str) -> tuple["Proposals", list[str]]:
    """Count stripped texts in a journal; returns also the names of its patterns."""
    from apollod.curation.dreaming.proposals import Proposals

    learned = {str(id_) for (id_,) in stream(path, _LEARNED, SECONDS)}
    patterns = rows.tuples(path, _PATTERNS)
    proposals = Proposals(instruction for _, instruction in patterns)
    for example, removed, session in stream(path, _STRIPPED, SECONDS):
        texts = [(one["why"], one["text"]) for one in json.loads(removed)]
        proposals.add(texts, example in learned, session)
    return proposals, [str(name) for name, _ in patterns]


def _object(one: "Proposal", name: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": name, "instruction": one.text, "examples": one.examples, "learned": one.learned,
        "sessions": len(one.sessions), "wordings": len(one.wordings), "stripped_as": dict(one.whys.most_common()),
    }  # fmt: skip
    return told | {"toml": _toml(told)}


def _toml(p: dict[str, Any]) -> str:
    wordings = f", in {p['wordings']} wordings" if p["wordings"] > 1 else ""
    whys = ", ".join(p["stripped_as"])
    return "\n".join((
        f"# stripped ({whys}) from {p['examples']} examples of {p['sessions']} sessions{wordings}; "
        f"{p['learned']} of them are learned",
        "[[dream.pattern]]",
        f"name = {toml_value(p['name'])}",
        f"instruction = {_long_text(p['instruction'])}",
    ))  # fmt: skip


def _long_text(text: str) -> str:
    """A text as TOML; over several lines as it stands, if TOML has a form for it and it cannot steer a terminal."""
    fits = "\n" in text and "'''" not in text and not text.endswith("'")
    return f"'''\n{text}'''" if fits and render.plain(text) == text else toml_value(text)
