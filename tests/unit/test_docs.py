"""The documentation agrees with the repository: files, links, commands and settings that it names exist.

Dated pages (docs/benchmarks, docs/decisions) say what was true on their day: only their links are checked.
"""

import argparse
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

from apollod.cli import checkpoint_tool
from apollod.cli.control.ctl import VERBS
from apollod.cli.main import COMMANDS
from apollod.cli.render import toml_value
from apollod.core.settings import PatternSettings
from apollod.supervisor.config import Config
from apollod.supervisor.sections import RETIRED, ReceiverSection

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

# --- files -----------------------------------------------------------------------------------------------------------

BELOW = ("", "apollod", "docs", "tests", "apollod/cli/control", "benchmarks")
"""where a page may mean a path to begin"""
STANDS_FOR = re.compile(r"NAME|SUBJECT|NNNN|\*|<|~|\.\.\.")


def named_files(text: str) -> set[str]:
    """Paths in backticks with a slash or an ending of a file, and docs/... outside of them."""
    quoted = re.findall(r"`([\w./*<>~-]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    plain = re.findall(r"(?<![\w/(`])(docs/[\w./-]+\w|decisions/\d{4}[\w-]*)", text)
    return {path for path in [*quoted, *plain] if not STANDS_FOR.search(path)}


def looks_like_a_file(path: str) -> bool:
    """True for what a page can only mean as a file of this repository; others name files of their reader."""
    rooms = (*(ROOT / "apollod").iterdir(), *(room for room in ROOT.iterdir() if not room.name.startswith(".")))
    return path.endswith((".py", ".sql")) or path.startswith(tuple(f"{room.name}/" for room in rooms if room.is_dir()))


def is_there(path: str) -> bool:
    number = re.fullmatch(r"(?:docs/)?decisions/(\d{4})", path)
    if number:
        return bool(list((ROOT / "docs/decisions").glob(f"{number[1]}-*.md")))
    if any((ROOT / start / path).exists() for start in BELOW):
        return True
    return "/" not in path and bool(named(path))


@cache
def basenames() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for room in ("apollod", "tests", "benchmarks", "migrations", "contrib", "docs"):
        for path in (ROOT / room).rglob("*.*"):
            found.setdefault(path.name, []).append(path)
    return found


def named(basename: str) -> list[Path]:
    return basenames().get(basename, [])


def missing(text: str) -> set[str]:
    return {path for path in named_files(text) if looks_like_a_file(path) and not is_there(path)}


@EACH
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text()) == set()


def test_a_file_that_is_gone_is_seen() -> None:
    text = "`core/decide.py`, `core/gone.py`, `trainer/`, `none.py`, `store/gone/`, docs/decisions/9999, docs/gone.md"
    assert missing(text) == {"core/gone.py", "none.py", "store/gone/", "docs/decisions/9999", "docs/gone.md"}


# --- links -----------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> set[str]:
    broken = set()
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.add(link)
    return broken


LINKING = [*PAGES, *sorted((ROOT / "docs").glob("*/*.md")), ROOT / "contrib/hooks/README.md", ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_links_lead_to_a_page_and_its_heading(page: Path) -> None:
    assert broken_links(page, page.read_text()) == set()


def test_a_broken_link_is_seen() -> None:
    page = ROOT / "docs" / "README.md"
    text = "[a](feed.md#files) [b](feed.md#gone) [c](gone.md) [d](https://example.com/x) [e](decisions)"
    assert broken_links(page, text) == {"feed.md#gone", "gone.md"}


def test_pages_that_errors_and_help_name_exist() -> None:
    texts = [path.read_text() for path in (ROOT / "apollod").rglob("*.py")]
    pages = {page for text in texts for page in re.findall(r"\bdocs/[\w-]+\.md", text)}
    assert {page for page in pages if not (ROOT / page).exists()} <= {"docs/session-format.md"}  # of another program
    assert len(pages) > 5


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert {page.name for page in PAGES} - {"README.md"} == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


# --- commands --------------------------------------------------------------------------------------------------------

Options = dict[tuple[str, ...], set[str]]


@cache
def options() -> Options:
    """Options of every command, by its words."""
    found: Options = {("apollod",): set(), ("apollod", "ctl"): {"--config", "--socket", "--json"}}

    def walk(words: tuple[str, ...], parser: argparse.ArgumentParser) -> None:
        found[words] = {option for action in parser._actions for option in action.option_strings}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    walk((*words, name), inner)

    for before, table in (("apollod",), COMMANDS), (("apollod", "ctl"), VERBS):
        for command in table:
            if command.name != "ctl":
                parser = argparse.ArgumentParser()
                getattr(import_module(command.module), command.add)(parser)
                walk((*before, command.name), parser)
    walk(("apollo-checkpoint",), checkpoint_tool.build_parser())
    return found


def commands(text: str) -> Iterator[list[str]]:
    """Words of each command line in a page: in backticks, or on a line of a block."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"^    (.*)$", text, re.M)
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    for line in [*lines, *spans]:
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", line.partition(" #")[0]).split()
        if words[:1] == ["ctl"]:
            words.insert(0, "apollod")
        if words[:1] in (["apollod"], ["apollo-checkpoint"]):
            yield words


def wrong(words: list[str]) -> str:
    """What of a command line does not exist; empty if all does."""
    known, at = options(), 1
    while at < len(words) and (*words[:at], words[at]) in known:
        at += 1
    command = tuple(words[:at])
    nouns = any(other[:at] == command and len(other) > at for other in known)
    if nouns and at < len(words) and re.fullmatch(r"[a-z]+", words[at]):
        return f"{' '.join(command)} has no {words[at]}"
    given = {word.partition("=")[0] for word in words[at:] if re.fullmatch(r"-{1,2}[a-z][\w-]*(=.*)?", word)}
    unknown = given - known[command] - {"--help", "--version"}
    return f"{' '.join(command)} has no {', '.join(sorted(unknown))}" if unknown else ""


@EACH
def test_every_command_of_a_page_exists(page: Path) -> None:
    assert [error for words in commands(page.read_text()) if (error := wrong(words))] == []


def test_a_command_that_does_not_exist_is_seen() -> None:
    text = "`ctl lesson teach`, `apollod ctl why 5 --gone`, `apollod ctl why 5 --file COPY`\n\n    apollod gone\n"
    found = [wrong(words) for words in commands(text)]
    assert found == ["apollod has no gone", "apollod ctl lesson has no teach", "apollod ctl why has no --gone", ""]


# --- settings --------------------------------------------------------------------------------------------------------


def keys() -> Iterator[tuple[str, str, str]]:
    """(section, key, default as TOML) of every setting. A retired key that only records have is no setting."""
    for section in msgspec.structs.fields(Config):
        kind: Any = section.type
        for name, struct in (
            (section.name, get_args(kind)[0] if get_origin(kind) is tuple else kind),
            *([("dream.pattern", PatternSettings)] if section.name == "dream" else []),
            *([("weights.receiver", ReceiverSection)] if section.name == "weights" else []),
        ):
            for field in msgspec.structs.fields(struct):
                if f"{name}.{field.encode_name}" in RETIRED:
                    continue
                told = "required" if field.default is msgspec.NODEFAULT else f"`{default(field)}`"
                told = "" if field.encode_name in ("pattern", "check", "terms", "settings", "receiver") else told
                yield name, field.encode_name, told


def default(field: msgspec.structs.FieldInfo) -> str:
    return toml_value(field.default) if not isinstance(field.default, msgspec.Struct) else ""


def test_the_reference_has_every_setting_with_its_default() -> None:
    found, section = [], ""
    for line in (ROOT / "docs" / "settings.md").read_text().splitlines():
        if heading := re.fullmatch(r"## `\[+([\w.]+)\]+`", line):
            section = heading[1]
        elif row := re.match(r"\| `(\w+)` \| (.*?) \|", line):
            found.append((section, row[1], row[2]))
    assert found == list(keys())
