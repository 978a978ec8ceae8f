"""`apollod ctl source add|remove`: the [[watch]] tables of the configuration file, edited as text so that everything
else in it stays as somebody wrote it. The daemon takes the change up when it is started again.
"""

import argparse
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any, get_args

from apollod.cli.control import ctl
from apollod.cli.render import toml_value
from apollod.core.intake.events import StripLevel
from apollod.errors import ConfigError, NotPermitted
from apollod.permission import check_permitted

_HEADER = re.compile(r"\s*\[")
_WATCH = re.compile(r"\s*\[\[\s*(watch|\"watch\"|'watch')\s*\]\]\s*(#.*)?$")
RESTART = "the daemon takes it up when it is started again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What a [[watch]] table says; what is not given is left to its default."""
    parser.add_argument("path", help="a directory of logs, with all below it, or a database")
    parser.add_argument("--format", help="of its files (default: by their content)")
    parser.add_argument("--mode", choices=("auto", "tail", "poll"), help="look for files (tail), databases, or both")
    parser.add_argument(
        "--model",
        action="append",
        dest="models",
        metavar="NAME",
        help="learn answers of this model, * for everybody's; repeatable",
    )
    parser.add_argument("--strip", choices=get_args(StripLevel), help="what is taken out of conversations")
    parser.add_argument(
        "--strip-pattern",
        action="append",
        dest="strip_patterns",
        metavar="REGEX",
        help="take out what it matches, too; repeatable",
    )
    parser.add_argument("--tier", choices=("direct", "bulk"), help="with which rate its examples are learned")
    parser.add_argument(
        "--sidechains", action="store_true", default=None, help="learn also what agents did that another one started"
    )
    parser.add_argument(
        "--context-tokens", type=int, metavar="N", help="of conversation before what is learned, roughly"
    )
    parser.add_argument(
        "--review", metavar="RULE", help="hold, sample:0.1 or auto: does an example wait for a decision?"
    )
    parser.add_argument("--learn", metavar="RULE", help="unrejected, positive or all: what evidence decides")
    parser.add_argument("--poll-s", type=float, metavar="S", help="how often databases are looked at")
    parser.add_argument(
        "--settle-s", type=float, metavar="S", help="a conversation to which nothing was added for so long is over"
    )


def remove_arguments(parser: argparse.ArgumentParser) -> None:
    """Which one."""
    parser.add_argument("path", help="the directory, as in the configuration")


def add(args: argparse.Namespace) -> int:
    """Append a table. Refused is what the daemon would refuse, and a directory that is watched already."""
    file = _file(args)
    text = _text(file)
    tables, place = _watched(file, text), _place(args.path)
    if any(_place(str(table.get("path", ""))) == place for table in tables):
        raise ConfigError(f"{place} is watched already", f"see [[watch]] in {file}; `ctl source remove` takes it out")
    names = (
        "format", "mode", "models", "strip", "strip_patterns", "sidechains", "tier", "context_tokens", "settle_s",
        "poll_s", "review", "learn",
    )  # fmt: skip
    given = {"path": str(place)} | {name: value for name in names if (value := getattr(args, name)) is not None}
    lines = ["[[watch]]", *(f"{name} = {toml_value(value)}" for name, value in given.items())]
    gap = "" if not text or text.endswith(("\n\n", "\n\r\n")) else "\n" if text.endswith("\n") else "\n\n"
    table = f"{gap}{chr(10).join(lines)}\n"
    _replace(file, text + (table.replace("\n", "\r\n") if "\r\n" in text else table), [*tables, given])
    missing = "" if place.exists() else "; it is not there yet"
    ctl.show(
        args, {"schema_version": 1, "config": str(file), "added": given}, f"{place} is in {file}{missing}; {RESTART}"
    )
    return 0


def remove(args: argparse.Namespace) -> int:
    """Take its table out; what was learned of it stays learned."""
    file = _file(args)
    text = _text(file)
    tables, place = _watched(file, text), _place(args.path)
    found = [n for n, table in enumerate(tables) if _place(str(table.get("path", ""))) == place]
    if not found:
        among = ", ".join(str(table.get("path")) for table in tables) or "none"
        raise ConfigError(f"{place} is not watched", f"watched in {file}: {among}")
    rest = [table for n, table in enumerate(tables) if n not in found]
    _replace(file, _without(text, found), rest)
    removed = [tables[n] for n in found]
    ctl.show(
        args, {"schema_version": 1, "config": str(file), "removed": removed}, f"{place} is out of {file}; {RESTART}"
    )
    return 0


def _file(args: argparse.Namespace) -> Path:
    """The configuration, which may be edited, without links."""
    if not args.config:
        raise ConfigError("which configuration?", "give --config FILE, or set APOLLOD_CONFIG")
    file = Path(os.path.realpath(args.config))
    from apollod.supervisor.config import load_config

    load_config(str(file))  # what is wrong with it as it stands is not ours
    check_permitted(file, os.W_OK)
    return file


def _text(file: Path) -> str:
    """With its line ends as they are."""
    return file.read_bytes().decode()


def _place(path: str) -> Path:
    return Path(path).expanduser().absolute().resolve()


def _watched(file: Path, text: str) -> list[dict[str, Any]]:
    return list(tomllib.loads(text).get("watch", []))


def _without(text: str, places: list[int]) -> str:
    """The text without these tables, counted from 0. Comments before the next table are that one's."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    begins = [n for n, line in enumerate(lines) if _WATCH.match(line)]
    for place in reversed(places):
        if place >= len(begins):
            break  # written in another way: whoever replaces the file finds that it is not as it should be
        begin = begins[place]
        end = next((n for n in range(begin + 1, len(lines)) if _HEADER.match(lines[n])), len(lines))
        while end < len(lines) and lines[end - 1].lstrip().startswith("#"):
            end -= 1
        del lines[begin:end]
        while begin == len(lines) and lines and lines[-1].isspace():
            begin -= 1
            lines.pop()
    return "".join(lines)


def _replace(file: Path, text: str, watch: list[dict[str, Any]]) -> None:
    """Put the new text in place, if it says what is wanted and the daemon could work with it. Raises ConfigError."""
    before = tomllib.loads(_text(file))
    wanted = {**before, "watch": watch} if watch else {name: value for name, value in before.items() if name != "watch"}
    by_hand = ConfigError(
        f"the [[watch]] tables of {file} are written in a way that is not edited here", "edit the file"
    )
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise by_hand from error
    if {**said, "watch": said.get("watch", [])} != {**wanted, "watch": watch}:
        raise by_hand
    part = file.with_name(f".{file.name}.part-{os.getpid()}")
    try:
        with open(part, "x", encoding="utf-8", newline="") as new:
            shutil.copymode(file, part)
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        _check(part, file)
        owner = file.stat()
        os.chown(part, owner.st_uid, owner.st_gid)
        os.replace(part, file)
    except PermissionError as error:
        raise NotPermitted(f"{file} cannot be replaced: {error.strerror}", "run it as the owner of the file") from error
    finally:
        part.unlink(missing_ok=True)


def _check(part: Path, file: Path) -> None:
    """Would the daemon take it? Raises ConfigError, with the name of the file that was meant."""
    from apollod.supervisor import sources
    from apollod.supervisor.config import load_config

    try:
        refused = sources.refused(load_config(str(part)))
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(part), str(file)), error.hint) from error
    if refused is not None:
        raise refused
