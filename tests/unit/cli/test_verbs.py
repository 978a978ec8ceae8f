"""A command is a file and a line of a table: help, dispatch, documentation and start-up time follow from that line."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from apollod.cli.commands import Command
from apollod.cli.control.ctl import VERBS
from apollod.cli.main import COMMANDS, build_parser, main

ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "vllm", "transformers", "numpy", "anyio", "structlog", "aiosqlite", "watchfiles", "asyncio",
         "textual", "rich")  # fmt: skip
ALL = [([], command) for command in COMMANDS] + [(["ctl"], verb) for verb in VERBS]
EACH = pytest.mark.parametrize(("before", "command"), ALL, ids=lambda value: getattr(value, "name", None))


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command line loads, whatever becomes of it."""
    code = (
        f"import sys\nfrom apollod.cli.main import main\ntry: main({list(arguments)!r})\nfinally: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


@EACH
def test_help_begins_with_its_line(before: list[str], command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*before, command.name, "--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0 and told.startswith(f"usage: apollod {' '.join([*before, command.name])} ")


@EACH
def test_each_module_has_one_way_in(before: list[str], command: Command) -> None:
    assert getattr(import_module(command.module), command.add).__annotations__["return"] is None


def test_the_table_is_what_help_lists(capsys: pytest.CaptureFixture[str]) -> None:
    for words, table in (([], COMMANDS), (["ctl"], VERBS)):
        with pytest.raises(SystemExit):
            build_parser().parse_args([*words, "--help"])
        listed = re.findall(r"^    ([a-z]+)(?:  |$)", capsys.readouterr().out, re.M)
        assert listed == [command.name for command in table] and len(set(listed)) == len(listed)


def test_every_verb_is_documented() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    told = " ".join(path.read_text() for path in documents)
    without = [verb.name for verb in VERBS if not re.search(rf"ctl {verb.name}\b", told)]
    assert not without, f"no page of docs says what `apollod ctl {without[0]}` is for"


def test_no_verb_of_the_room_is_left_out_of_the_table() -> None:
    room = ROOT / "apollod/cli/control"
    added = {
        (".".join(path.relative_to(ROOT).with_suffix("").parts), name)
        for path in room.rglob("*.py")
        for name in re.findall(r"^def (add(?:_\w+)?)\(parser: argparse", path.read_text(), re.M)
    }
    assert added == {(verb.module, verb.add) for verb in VERBS} | {("apollod.cli.control.ctl", "add")}


def test_ctl_status_loads_its_own_verb_and_nothing_that_takes_long() -> None:
    found = loaded_by("ctl", "status", "--socket", "/nowhere")
    assert not found & {*HEAVY, "sqlite3", "msgspec", "pathlib", "apollod.core", "apollod.supervisor"}
    ours = {name.removeprefix("apollod.cli.") for name in found if name.startswith("apollod.cli.")}
    assert ours == {"main", "commands", "render", "control", "control.ctl", "control.status_verb"}


def test_nor_does_the_page_of_a_status() -> None:
    states = json.loads((ROOT / "tests" / "golden" / "v0.1.0.json").read_text())["states"]
    code = (
        "import sys; from apollod.cli.control.status_verb import _page; "
        f"print(_page({next(iter(states.values()))!r})[:5], *sys.modules)"
    )
    page, *found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert page == "state" and not {*found} & {*HEAVY, "sqlite3", "msgspec", "apollod.core", "apollod.wire.status"}


@pytest.mark.parametrize(
    "words",
    [
        "run --help",
        "demo --help",
        "replay --help",
        "checkpoint list --help",
        "ctl --help",
        "ctl why --help",
        "ctl review --help",
        "ctl review --socket /nowhere",
    ],
)
def test_help_loads_nothing_that_takes_long(words: str) -> None:
    assert not loaded_by(*words.split()) & set(HEAVY)
