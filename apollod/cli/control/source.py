"""`apollod ctl source list|show|test|add|remove`: the files that examples come from.

`add` and `remove` edit the [[watch]] tables of the configuration and leave the rest of the file as it was written; the
daemon takes the change up at its next start.
"""

import argparse
import os
import shutil
import tomllib
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

from apollod.adapters.journal.journal_reader import literal
from apollod.cli import commands, render
from apollod.cli.control import ctl, rows
from apollod.core.facts.intake.events import StripLevel
from apollod.errors import ApolloError, ConfigError, NotPermitted
from apollod.permission import check_permitted

SOURCES_SHOWN = REASONS_SHOWN = 20
RESTART = "the daemon takes it up when it is started again"
_COLUMNS: tuple[render.Column, ...] = (
    ("source", lambda s: rows.end_of(s["path"])), ("bytes", "offset"), ("lines", "line"), "accepted", "duplicates",
    "rejected", ("since", "at"),
)  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "the files that examples come from"
    ctl.actions(
        parser,
        ("list", "every file that was read: how far, and what became of its lines; and what cannot be read", _list,
         ctl.jsonl, ctl.of_a_copy),
        ("show", "a file, or all below a directory: how far it is read, what became of its records and why", _show,
         ctl.argument("path", metavar="PATH", help="a file, a directory, or a source as the journal calls it"),
         ctl.of_a_copy),
        ("test", "what would be learned of a log or a directory of logs; needs no daemon, changes nothing", _test,
         _trial_arguments),
        ("add", "watch a directory of logs: a [[watch]] table in the configuration", _add, _table_arguments),
        ("remove", "watch a directory no longer", _remove,
         ctl.argument("path", help="the directory, as in the configuration")),
    )  # fmt: skip


def _list(args: argparse.Namespace) -> int:
    journal = ctl.journal_path(args)
    found = rows.objects(journal, "SELECT * FROM sources ORDER BY seq")
    closed = _blocked(journal) if not args.jsonl else []
    rows.show_list(args, "sources", found, _COLUMNS, {"blocked": closed})
    for one in closed if not args.json else ():
        print(render.plain(f"{one['path']} cannot be read: {one['reason']}; {one['hint']}"))
    return 0


def _show(args: argparse.Namespace) -> int:
    told = _sources_of(ctl.journal_path(args), args.path)
    return render.show(args, told, lambda: _page(told))


def _trial_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="a log, or a directory of them")
    parser.add_argument("--format", default="auto", help="read as this format, whatever it looks like")
    parser.add_argument(
        "--model", action="append", metavar="NAME",
        help="learn answers of this model (default apollo), * for everybody's; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--strip", choices=get_args(StripLevel), default="memory", help="as in [[watch]] (default memory)"
    )
    parser.add_argument("--sidechains", action="store_true", help="learn also what agents did that another one started")
    parser.add_argument("--examples", type=int, default=3, metavar="N", help="show so many (default 3)")
    parser.add_argument(
        "--model-dir", metavar="DIR", help="try each answer with the tokenizer in this directory, as --config does"
    )


def _test(args: argparse.Namespace) -> int:
    from apollod.cli.control import source_trial  # reads logs, which takes time to import

    return source_trial.run(args)


_BLOCKED = """
    SELECT key AS path, body ->> '$.reason' AS reason, body ->> '$.hint' AS hint, body ->> '$.mode' AS mode,
           body ->> '$.place' AS place, strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS since
    FROM events WHERE kind = 'source.blocked' AND seq IN (
        SELECT max(seq) FROM events WHERE kind IN ('source.blocked', 'source.unblocked') GROUP BY key
    )"""


def _blocked(journal: str, path: str = "") -> list[dict[str, Any]]:
    """Paths that cannot be read now: all of them, or a path and those below it."""
    below = f"substr(path, 1, {len(path) + 1}) = {literal(path + '/')}"
    chosen = f"path = {literal(path)} OR {below}" if path else "1"
    return rows.objects(journal, f"SELECT * FROM ({_BLOCKED}) WHERE {chosen} ORDER BY path")


def _sources_of(journal: str, named: str) -> dict[str, Any]:
    """Figures of a source, by its id or path, or of all below a directory. Raises ApolloError if none is known."""
    path = os.path.abspath(Path(named).expanduser())
    below = f"substr(path, 1, {len(path) + 1}) = {literal(path + '/')}"
    chosen = f"source = {literal(named)} OR path = {literal(path)} OR {below}"
    found = rows.objects(journal, f"SELECT * FROM sources WHERE {chosen} ORDER BY seq")
    closed = _blocked(journal, path)
    if not found and not closed:
        raise ApolloError(f"nothing was read of {named} yet", "`apollod ctl source list` has what was read")
    among = f"(SELECT source FROM sources WHERE {chosen})"
    accepted = f"SELECT key FROM events WHERE kind = 'example.accepted' AND body ->> '$.source' IN {among}"
    counts = _counted(
        journal,
        f"""
        SELECT c.key, sum(c.value) FROM events, json_each(events.body, '$.counts') AS c
        WHERE kind = 'source.consumed' AND events.key IN {among} GROUP BY 1 ORDER BY 2 DESC, 1
        """,
    )
    return {
        "path": path,
        "sources": [{**one, "bytes": _size(one["path"])} for one in found],
        "blocked": closed,
        "records": sum(one["line"] for one in found),
        "accepted": sum(one["accepted"] for one in found),
        "duplicates": sum(one["duplicates"] for one in found),
        "quarantined": sum(one["rejected"] for one in found),
        **{group: _group(counts, group) for group in ("dropped", "unknown", "redacted")},
        "quarantined_reasons": _counted(
            journal,
            f"""
            SELECT body ->> '$.reason', count(*) FROM events
            WHERE kind = 'source.quarantined' AND key IN {among} GROUP BY 1 ORDER BY 2 DESC, 1
            """,
        ),
        "states": _counted(
            journal, f"SELECT state, count(*) FROM examples WHERE source IN {among} GROUP BY 1 ORDER BY 1"
        ),
        "rejected_reasons": _counted(
            journal,
            f"""
            SELECT body ->> '$.reason', count(*) FROM events
            WHERE kind = 'example.rejected' AND key IN ({accepted}) GROUP BY 1 ORDER BY 2 DESC, 1
            """,
        ),
    }


def _counted(journal: str, sql: str) -> dict[str, int]:
    return {str(what): int(count) for what, count in rows.tuples(journal, sql)}


def _group(counts: dict[str, int], group: str) -> dict[str, int]:
    """Counts of `group: NAME`, by name."""
    return {what.partition(": ")[2]: count for what, count in counts.items() if what.startswith(f"{group}: ")}


def _size(path: str) -> int | None:
    """Size of the file now in bytes; None: it is gone, or not on this machine."""
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _page(told: dict[str, Any]) -> list[str]:
    sources, states = told["sources"], ", ".join(f"{count} {state}" for state, count in told["states"].items())
    read = [f"read        {_how_far(one)}, since {one['at']}   {one['source']}" for one in sources]
    if len(sources) > 1:
        read = [f"{line}   {rows.end_of(one['path'])}" for line, one in zip(read, sources, strict=True)]
    lines = [
        f"path        {told['path']}",
        *render.first(read, SOURCES_SHOWN, "            and {} more files; --json has all of them"),
        *(
            f"blocked     {one['path']}: {one['reason']}; {one['hint']} (since {one['since']})"
            for one in told["blocked"]
        ),
        f"records     {told['records']}",
        f"accepted    {told['accepted']}" + (f" ({states})" if states else ""),
        f"duplicates  {told['duplicates']}",
        f"quarantined {told['quarantined']}",
    ]
    for title in ("dropped", "unknown", "redacted", "quarantined_reasons", "rejected_reasons"):
        name = title.partition("_")[0]
        counts = [f"{count:>11} {name}: {' '.join(what.split())}" for what, count in told[title].items()]
        lines += render.first(counts, REASONS_SHOWN, "            and {} more; --json has all of them")
    return lines


def _how_far(one: dict[str, Any]) -> str:
    size, offset = one["bytes"], one["offset"]
    if size is None:
        return f"{offset} bytes, {one['line']} lines; the file is not there now"
    return f"{offset} of {size} bytes, {one['line']} lines"


# --- add, remove: [[watch]] tables --------------------------------------------------------------------------------


def _table_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the values of a [[watch]] table."""
    parser.add_argument("path", help="a directory of logs, with all below it, or a database")
    parser.add_argument("--format", help="of its files (default: by their content)")
    parser.add_argument("--mode", choices=("auto", "tail", "poll"), help="look for files (tail), databases, or both")
    parser.add_argument(
        "--model", action="append", dest="models", metavar="NAME",
        help="learn answers of this model, * for everybody's; repeatable",
    )  # fmt: skip
    parser.add_argument("--strip", choices=get_args(StripLevel), help="what is taken out of conversations")
    parser.add_argument(
        "--strip-pattern", action="append", dest="strip_patterns", metavar="REGEX",
        help="take out what it matches, too; repeatable",
    )  # fmt: skip
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


def _add(args: argparse.Namespace) -> int:
    """Append a table. Raises ConfigError if the daemon would refuse it, or the directory is watched already."""
    import tomlkit  # here for start-up time, as below

    file = _file(args)
    text = _content(file)
    tables, place = _watched(text), _place(args.path)
    if any(_place(str(table.get("path", ""))) == place for table in tables):
        raise ConfigError(f"{place} is watched already", f"see [[watch]] in {file}; `ctl source remove` takes it out")
    names = (
        "format", "mode", "models", "strip", "strip_patterns", "sidechains", "tier", "context_tokens", "settle_s",
        "poll_s", "review", "learn",
    )  # fmt: skip
    given = {"path": str(place)} | {name: value for name in names if (value := getattr(args, name)) is not None}
    gap = "" if not text or text.endswith(("\n\n", "\n\r\n")) else "\n" if text.endswith("\n") else "\n\n"
    table = gap + tomlkit.dumps({"watch": [given]})
    _replace(file, text + (table.replace("\n", "\r\n") if "\r\n" in text else table), [*tables, given])
    missing = "" if place.exists() else "; it is not there yet"
    answer = {"config": str(file), "added": given}
    return render.show(args, answer, f"{place} is in {file}{missing}; {RESTART}")


def _remove(args: argparse.Namespace) -> int:
    """Remove the table of a directory; learned examples of it stay learned."""
    file = _file(args)
    text = _content(file)
    tables, place = _watched(text), _place(args.path)
    found = [n for n, table in enumerate(tables) if _place(str(table.get("path", ""))) == place]
    if not found:
        among = ", ".join(str(table.get("path")) for table in tables) or "none"
        raise ConfigError(f"{place} is not watched", f"watched in {file}: {among}")
    rest = [table for n, table in enumerate(tables) if n not in found]
    _replace(file, _without(text, found), rest)
    answer = {"config": str(file), "removed": [tables[n] for n in found]}
    return render.show(args, answer, f"{place} is out of {file}; {RESTART}")


def _file(args: argparse.Namespace) -> Path:
    """The configuration file with links resolved. Raises NotPermitted if it may not be written."""
    commands.configuration(args, "which configuration?")  # what is wrong with it as it stands is not ours
    file = Path(os.path.realpath(args.config))
    check_permitted(file, os.W_OK)
    return file


def _content(file: Path) -> str:
    """Text with its line ends as they are."""
    return file.read_bytes().decode()


def _place(path: str) -> Path:
    return Path(path).expanduser().absolute().resolve()


def _watched(text: str) -> list[dict[str, Any]]:
    return list(tomllib.loads(text).get("watch", []))


def _without(text: str, places: list[int]) -> str:
    """The text without these [[watch]] tables, counted from 0. Comments right above the next table stay with it."""
    import tomlkit
    from tomlkit.items import AoT, Comment

    pieces = _pieces(text)
    watch = [(n, tomlkit.parse(piece).get("watch")) for n, piece in enumerate(pieces)]
    tables = [(n, item[0]) for n, item in watch if isinstance(item, AoT)]
    for n, table in reversed([tables[place] for place in places if place < len(tables)]):
        if n + 1 < len(pieces):
            items = [item for _, item in table.value.body]
            above = list(takewhile(lambda item: isinstance(item, Comment), reversed(items)))
            pieces[n] = "".join(item.as_string() for item in reversed(above))
        else:
            lines = pieces[n - 1].splitlines(keepends=True)
            while lines and lines[-1].isspace():
                lines.pop()
            pieces[n - 1 :] = ["".join(lines)]
    return "".join(pieces)


def _pieces(text: str) -> list[str]:
    """The text cut before the header of each table: as one document, tomlkit would move [[watch]] tables together
    between which others stand. A line in a text or list that looks like a header is none: what is before it does not
    parse."""
    import tomlkit
    from tomlkit.exceptions import ParseError

    pieces = [""]
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            with suppress(ParseError):
                tomlkit.parse(pieces[-1])
                pieces.append("")
        pieces[-1] += line
    return pieces


def _replace(file: Path, text: str, watch: list[dict[str, Any]]) -> None:
    """Write the new text, if it has the wanted tables and the daemon could work with it. Raises ConfigError."""
    before = tomllib.loads(_content(file))
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
    """Raise ConfigError, which names `file`, for a configuration that the daemon would refuse."""
    from apollod.supervisor import sources
    from apollod.supervisor.config import load_config

    try:
        refused = sources.refused(load_config(str(part)))
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(part), str(file)), error.hint) from error
    if refused is not None:
        raise refused
