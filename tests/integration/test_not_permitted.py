"""What another user may not use: exit code 4, and one line that names what is closed, whose it is and the way out."""

import json
import os
import random
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support import sharded_model as model
from support.journals import STORY, write
from support.kept_history import KeptHistory
from support.other_user import as_nobody, needs_root, open_place, refused

from apollod.adapters.ipc.channel import Link
from apollod.adapters.journal.journal_reader import query
from apollod.errors import DaemonUnreachable, JournalError, NotPermitted
from apollod.permission import check_permitted
from apollod.store.access import interrupted

pytestmark = needs_root
CONFIG = """\
[state]
dir = "{root}/state"
[model]
path = "{root}/state/m"
"""
ASKING = [["events"], ["query", "SELECT 1"], ["why", "1"], ["replay"], ["journal", "verify"]]


@pytest.fixture
def place() -> Iterator[Path]:
    with open_place() as directory:
        (directory / "apollod.toml").write_text(CONFIG.format(root=directory))
        yield directory


@pytest.fixture
def journal(place: Path) -> Path:
    (place / "state").mkdir(0o755)
    path = write(place / "state/journal.db", STORY)
    path.chmod(0o644)
    return path


# --- the socket ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["socket", "directory"])
def test_a_daemon_of_another_user(place: Path, closed: str) -> None:
    path = place / "run/apollod.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        path.chmod(0o600 if closed == "socket" else 0o666)
        path.parent.chmod(0o755 if closed == "socket" else 0o700)
        done = as_nobody("ctl", "status", "--socket", path)
        assert done.stdout == ""
        refused(
            done,
            path,
            "it is root's (mode 0600)" if closed == "socket" else f"{path.parent} is root's",
            "run this as root",
        )
    assert as_nobody("ctl", "status", "--socket", place / "nothing.sock").returncode == 3


def test_nobody_answers_is_another_thing(place: Path) -> None:
    with pytest.raises(DaemonUnreachable):
        Link.connect(str(place / "none"))


# --- the journal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closed", "asking"), [*(("file", asking) for asking in ASKING), ("directory", ASKING[1]), ("log", ASKING[1])]
)
def test_a_journal_of_another_user(place: Path, journal: Path, closed: str, asking: list[str]) -> None:
    with closing(sqlite3.connect(journal, isolation_level=None)) as db:  # held open: its log stays
        db.execute("UPDATE meta SET value = value")
        shut = {"file": journal, "directory": journal.parent, "log": journal.with_name("journal.db-wal")}[closed]
        assert shut.exists()
        shut.chmod(shut.stat().st_mode & 0o700)
        done = as_nobody("ctl", *asking, "--config", place / "apollod.toml")
        refused(done, journal, shut, "root's (mode 0", "run this as root")


def test_an_offline_replay_from_it(journal: Path) -> None:
    journal.chmod(0o600)
    refused(as_nobody("replay", "--journal", journal), f"{journal} may not be used: it is root's (mode 0600)")


def test_a_journal_that_is_missing_or_open_to_all_is_not_refused(journal: Path) -> None:
    assert as_nobody("ctl", "journal", "verify", "--file", journal).returncode == 0
    done = as_nobody("ctl", "journal", "verify", "--file", journal.with_name("none.db"))
    assert done.returncode == 1 and "cannot be opened" in done.stderr


def test_for_the_daemon_it_is_an_error_of_the_journal(journal: Path) -> None:
    """What reads along while it runs answers for those."""
    journal.parent.chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(JournalError) as caught:
            query(journal, "SELECT 1")
    finally:
        os.seteuid(0)
    assert isinstance(caught.value, NotPermitted)


# --- checkpoints --------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(place: Path) -> KeptHistory:
    (place / "state").mkdir(0o755)
    return KeptHistory(place / "state", 31).many(2)


@pytest.mark.parametrize("closed", [".", "checkpoints", "m", "base/m"])
def test_checkpoints_of_another_user(place: Path, kept: KeptHistory, closed: str) -> None:
    (kept.root / closed).chmod(0o700)
    shut = (kept.root / closed).resolve()
    by_hand = ["--checkpoints", kept.checkpoints, "--model", kept.model_dir]
    for arguments in (["list"], ["export", "out", "--step", "latest"]):
        refused(
            as_nobody("checkpoint", *arguments, "--config", place / "apollod.toml"),
            shut,
            "root's (mode 0700)",
            "run this as root",
        )
    refused(as_nobody("checkpoint", "list", *by_hand), shut)


def test_checkpoints_that_are_open_to_all(place: Path, kept: KeptHistory) -> None:
    done = as_nobody("checkpoint", "list", "--config", place / "apollod.toml", "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)["checkpoints"]) == 2


# --- a model directory --------------------------------------------------------------------------------------------


@pytest.fixture
def weights(place: Path) -> Path:
    return model.write(place / "m", model.model(random.Random(5), 2))


def tool(*arguments: object) -> tuple[int, str, dict[str, object]]:
    done = as_nobody(*arguments, "--json", module="checkpoint_tool")
    return done.returncode, done.stderr, json.loads(done.stdout)


@pytest.mark.parametrize("closed", ["", "model-00001-of-00002.safetensors", "model.safetensors.index.json", ".apollod"])
def test_weights_that_may_not_be_read(weights: Path, closed: str) -> None:
    (weights / ".apollod").mkdir(exist_ok=True)
    (weights / closed).chmod(0o700)
    source = shutil.copytree(weights, weights.with_name("open"))
    for item in (source, *source.iterdir()):
        item.chmod(0o777)
    for arguments in (
        ["fingerprint", "--model-dir", weights], ["recover", "--model-dir", weights],
        ["sync", "--model-dir", weights, "--from-dir", source], ["sync", "--model-dir", source, "--from-dir", weights],
    ):  # fmt: skip
        code, said, body = tool(*arguments)
        assert (code, said.count("\n")) == (4, 1), (arguments, said)
        assert "root's" in said and "run this as root" in said and "interrupted" not in said
        assert body["hint"] == "run this as root"


@pytest.mark.parametrize("closed", ["", "model-00001-of-00002.safetensors", ".apollod", ".apollod/weights.lock"])
def test_weights_that_may_not_be_written(weights: Path, closed: str) -> None:
    (weights / ".apollod").mkdir()
    (weights / ".apollod/weights.lock").touch()
    for item in (weights, *weights.rglob("*")):
        item.chmod(0o777)
    (weights / closed).chmod(0o755)
    for arguments in (
        ["recover", "--model-dir", weights],
        ["sync", "--model-dir", weights, "--from-dir", weights.with_name("n")],
    ):
        if "sync" in arguments:
            shutil.copytree(weights, weights.with_name("n"))
        code, said, _ = tool(*arguments)
        assert code == 4 and said.count("\n") == 1, (arguments, said)
        assert f"{weights / closed} may not be used: it is root's (mode 0755); run this as root" in said
    if closed != ".apollod/weights.lock":
        assert tool("fingerprint", "--model-dir", weights)[0] == 0, "to read it is enough"


def test_live_weights_of_a_directory_that_may_not_be_read(weights: Path) -> None:
    weights.chmod(0o700)
    code, said, _ = tool("sync", "--model-dir", weights)
    assert code == 4 and f"{weights} is root's (mode 0700)" in said


def test_whether_a_sync_was_interrupted_is_not_guessed(weights: Path) -> None:
    assert not interrupted(weights) and not interrupted(weights / "config.json")
    weights.chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(NotPermitted, match=f"{weights} is root's"):
            interrupted(weights)
    finally:
        os.seteuid(0)


# --- in general ---------------------------------------------------------------------------------------------------


def test_our_own_that_is_closed_to_us_and_a_user_without_a_name(place: Path) -> None:
    mine, strange = place / "mine", place / "strange"
    for path, uid in ((mine, 65534), (strange, 54321)):
        path.touch(0o200)
        os.chown(path, uid, uid)
    os.seteuid(65534)
    try:
        with pytest.raises(NotPermitted) as own:
            check_permitted(mine, os.R_OK)
        with pytest.raises(NotPermitted, match="it is uid 54321's"):
            check_permitted(strange, os.R_OK)
        check_permitted(mine, os.W_OK)
        check_permitted(place / "nothing", os.R_OK)
        check_permitted(mine / "below a file", os.R_OK)
    finally:
        os.seteuid(0)
    assert own.value.hint == f"change its mode: `chmod u+rwX {mine}`"
