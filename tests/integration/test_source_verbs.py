"""`apollod ctl source show|add|remove`: what a person types."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.journals import STORY, A, accepted, write

from apollod.cli.main import main
from apollod.core import events as ev

BEGUN = """# our agent
[model]
path = "/m"   # the small one

# logs of the night shift
[[watch]]
path = "/logs/night"
strip = "all"

# and what came of it
[trainer]
lr = 1e-5
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "apollod.toml"
    path.write_text(f'{BEGUN}[state]\ndir = "{tmp_path / "state"}"\n')
    path.chmod(0o640)
    return path


def source(config: Path, *args: str) -> int:
    return main(["ctl", "source", *args, "--config", str(config)])


def watched(config: Path) -> list[dict[str, Any]]:
    return tomllib.loads(config.read_text()).get("watch", [])


def test_a_watched_directory_is_added_and_removed_and_everything_else_stays(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = config.read_text()
    logs = tmp_path / "logs"
    assert (
        source(config, "add", str(logs), "--format", "claude-code", "--model", "*", "--model", "b", "--sidechains",
               "--mode", "tail", "--context-tokens", "512", "--strip-pattern", "a+", "--poll-s", "5",
               "--review", "hold") == 0
    )  # fmt: skip
    assert "it is not there yet; the daemon takes it up when it is started again" in capsys.readouterr().out
    assert config.read_text().startswith(before) and config.stat().st_mode & 0o777 == 0o640
    table = {
        "path": str(logs), "format": "claude-code", "mode": "tail", "models": ["*", "b"], "strip_patterns": ["a+"],
        "sidechains": True, "context_tokens": 512, "poll_s": 5.0, "review": "hold",
    }  # fmt: skip
    assert watched(config) == [{"path": "/logs/night", "strip": "all"}, table]
    assert main(["config", "show", "--config", str(config), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["watch"]) == 2
    assert source(config, "remove", str(logs), "--json") == 0
    assert json.loads(capsys.readouterr().out)["removed"] == [table]
    assert config.read_text() == before
    assert source(config, "remove", "/logs/night") == 0
    assert watched(config) == []
    assert config.read_text() == before.replace('[[watch]]\npath = "/logs/night"\nstrip = "all"\n\n', "")
    assert [file.name for file in tmp_path.iterdir()] == ["apollod.toml"]


def test_a_file_behind_a_link_with_other_line_ends_is_edited_in_its_place(config: Path, tmp_path: Path) -> None:
    config.write_bytes(config.read_bytes().replace(b"\n", b"\r\n"))
    before = config.read_bytes()
    (tmp_path / "link.toml").symlink_to(config)
    assert source(tmp_path / "link.toml", "add", "/logs/day") == 0
    assert (tmp_path / "link.toml").is_symlink() and config.read_bytes().startswith(before)
    assert [table["path"] for table in watched(config)] == ["/logs/night", "/logs/day"]
    assert config.read_bytes().count(b"\n") == config.read_bytes().count(b"\r\n")
    assert source(config, "remove", "/logs/day") == 0 and config.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "{state}/inbox"], "lies in the state directory"),
        (["add", "/logs/day", "--format", "claud"], "there is no format 'claud'"),
        (["add", "/logs/../logs/night/"], "is watched already"),
        (["add", "/logs/day", "--settle-s", "0.1"], "settle_s"),
        (["add", "/logs/day", "--context-tokens", "0"], "context_tokens"),
        (["add", "/logs/day", "--mode", "poll", "--format", "codex"], 'use mode = "tail"'),
        (["add", "/logs/day", "--strip-pattern", "("], "is no regular expression"),
        (["remove", "/logs/day"], "is not watched; watched in"),
    ],
)
def test_what_the_daemon_would_refuse_is_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    before = config.read_text()
    assert source(config, *(part.format(state=tmp_path / "state") for part in arguments)) == 2
    said = capsys.readouterr().err
    assert words in said and ".part-" not in said
    assert config.read_text() == before and [file.name for file in tmp_path.iterdir()] == ["apollod.toml"]


def test_tables_that_are_written_in_another_way_are_left_to_a_person(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'watch = [{path = "/logs/night"}]\n[model]\npath = "/m"\n'
    config.write_text(text)
    for verb in ("remove", "add"):
        assert source(config, verb, "/logs/night" if verb == "remove" else "/logs/day") == 2
        assert "edit the file" in capsys.readouterr().err and config.read_text() == text


ODD = '''# top
  [model]   # indented
path    =   """
/m
[[watch]]
"""

[[watch]]
path="/logs/first"     # no spaces
models = [   # several lines
  "a",
]

# about the trainer
["trainer"]
lr=1e-5	# a tab

#: nobody owns this

  [[ "watch" ]]# odd
path = "/logs/second"
# belongs to the last one
[[watch]]
path = '/logs/third'
# at the end
'''


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_and_odd_layout_survive(config: Path, end: str) -> None:
    config.write_bytes(ODD.replace("\n", end).encode())

    def text() -> str:
        return config.read_bytes().decode().replace(end, "\n")

    for path in ("/logs/day", "/logs/evening"):
        assert source(config, "add", path) == 0 and text().startswith(ODD)
    for path in ("/logs/evening", "/logs/day"):
        assert source(config, "remove", path) == 0
    assert text() == ODD
    first, trainer = ODD.index('[[watch]]\npath="'), ODD.index("# about the trainer")
    second, third = ODD.index('  [[ "watch"'), ODD.index("# belongs to")
    assert source(config, "remove", "/logs/second") == 0 and text() == ODD[:second] + ODD[third:]
    assert source(config, "remove", "/logs/third") == 0
    assert text() == f"{ODD[:second]}# belongs to the last one\n"
    assert source(config, "remove", "/logs/first") == 0
    assert text() == f"{ODD[:first]}{ODD[trainer:second]}# belongs to the last one\n"
    assert tomllib.loads(text()) == {"model": {"path": "/m\n[[watch]]\n"}, "trainer": {"lr": 1e-5}}


def test_no_configuration_is_guessed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("APOLLOD_CONFIG", raising=False)
    assert main(["ctl", "source", "add", "/logs"]) == 2
    assert "give --config" in capsys.readouterr().err


# --- show ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A log of which more was dropped than learned, beside what STORY has."""
    log = tmp_path / "logs" / "a.jsonl"
    log.parent.mkdir()
    log.write_bytes(b"x" * 100)
    taken = ev.SourceConsumed(
        source="log", path=str(log), offset=60, line=9, accepted=1, duplicates=1, rejected=2,
        counts={"dropped: a title": 3, "unknown: from-the-future": 1, "redacted: AWS Access Key": 2},
    )  # fmt: skip
    bad = ev.SourceQuarantined(
        source="log", path=str(log), line=3, reason="not JSON", bytes=3, sha256="aa", kept="/q/aa"
    )
    story = [
        ev.SourceDiscovered(source="log", path=str(log)), accepted("e" * 32, 1, "log"),
        ev.ExampleDuplicate(example=A, source="log", line=2), bad, msgspec.structs.replace(bad, line=4),
        taken, msgspec.structs.replace(taken, offset=80, line=12, accepted=0, duplicates=0, rejected=0),
        ev.ExampleRejected(example="e" * 32, reason="no token to learn"),
    ]  # fmt: skip
    return write(tmp_path / "journal.db", [*STORY, *story])


def show(journal: Path, named: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["ctl", "source", "show", named, "--json", "--file", str(journal)]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_how_far_a_source_is_read_and_what_became_of_it_by_reason(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = show(journal, str(tmp_path / "logs" / "a.jsonl"), capsys)
    (one,) = told["sources"]
    assert (one["offset"], one["bytes"], one["line"], one["source"]) == (80, 100, 12, "log")
    assert (told["records"], told["accepted"], told["duplicates"], told["quarantined"]) == (12, 1, 1, 2)
    assert (told["dropped"], told["unknown"], told["redacted"]) == (
        {"a title": 6}, {"from-the-future": 2}, {"AWS Access Key": 4},
    )  # fmt: skip
    assert told["quarantined_reasons"] == {"not JSON": 2} and told["states"] == {"rejected": 1}
    assert told["rejected_reasons"] == {"no token to learn": 1}
    for same in ("log", str(tmp_path / "logs"), f"{tmp_path}/logs/../logs/"):
        assert show(journal, same, capsys)["sources"] == [one]
    assert main(["ctl", "source", "show", str(tmp_path / "logs"), "--file", str(journal)]) == 0
    out = capsys.readouterr().out
    for words in ("80 of 100 bytes, 12 lines", "accepted    1 (1 rejected)", "6 dropped: a title",
                  "2 quarantined: not JSON", "1 rejected: no token to learn"):  # fmt: skip
        assert words in out


def test_states_of_the_examples_of_a_source(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = show(journal, "/in/a.jsonl", capsys)
    assert told["states"] == {"held": 1, "pending": 1, "rejected": 1, "skipped": 1, "trained": 2}
    assert told["sources"][0]["bytes"] is None and told["accepted"] == sum(told["states"].values())


BLOCKED = [
    ev.SourceBlocked(path="/in/b", reason="it is a link", hint="copy it", mode="inbox", place="/in"),
    ev.SourceBlocked(path="/in/c", reason="it may not be read", hint="ask", mode="inbox", place="/in"),
    ev.SourceUnblocked(path="/in/b"),
    ev.SourceBlocked(path="/in/c", reason="it is not there", hint="make it", mode="inbox", place="/in"),
]


def test_what_cannot_be_read_now_is_listed_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "journal.db", [*STORY, *BLOCKED])
    told = {
        "path": "/in/c", "reason": "it is not there", "hint": "make it", "mode": "inbox", "place": "/in",
        "since": "2023-11-14T22:13:20.123Z",
    }  # fmt: skip
    assert main(["ctl", "source", "list", "--file", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["blocked"] == [told]
    assert main(["ctl", "source", "list", "--file", str(path)]) == 0
    out = capsys.readouterr().out
    assert "/in/c cannot be read: it is not there; make it" in out and "/in/b" not in out
    assert main(["ctl", "source", "list", "--file", str(path), "--jsonl"]) == 0
    assert "cannot be read" not in capsys.readouterr().out
    assert show(path, "/in", capsys)["blocked"] == [told] and show(path, "/in/a.jsonl", capsys)["blocked"] == []
    assert show(path, "/in/c", capsys)["sources"] == []
    assert main(["ctl", "source", "show", "/in/c", "--file", str(path)]) == 0
    assert "blocked     /in/c: it is not there; make it (since 2023-11-14T22:13:20.123Z)" in capsys.readouterr().out


def test_what_nothing_was_read_of(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for named in ("/in/a.json", "/in/a", os.sep + "x'; DROP TABLE events; --"):
        assert main(["ctl", "source", "show", named, "--file", str(journal)]) == 1
        assert "nothing was read of" in capsys.readouterr().err
