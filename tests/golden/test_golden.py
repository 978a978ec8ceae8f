"""Journals made by earlier code are read for ever: migrated, verified, folded, asked and replayed as then."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import torch
from golden.answers import answers, differences
from support import in_memory
from support.fork_server import ForkedPopen

from apollod.adapters.ipc import offline_trainer
from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.schema import load
from apollod.adapters.journal.writer import Journal
from apollod.cli.main import main
from apollod.core.events import KINDS, StepCompleted, TrainerBound
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.wire.event_codec import encode_body
from apollod.wire.state_snapshot import dump_state, load_state

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("v*.db"))
STEPS = 3  # replayed into weights

tmp_path = in_memory.tmp_path


@pytest.fixture(params=NAMES, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def _opened_and_closed(path: Path) -> tuple[int, str]:
    journal = await Journal.open(path)
    try:
        return journal.head
    finally:
        await journal.close()


@pytest.fixture(scope="module")
def migrated(name: str) -> Iterator[Path]:
    """A copy, brought to the schema of this code; nobody writes to it."""
    with in_memory.directory() as directory:
        copy = Path(shutil.copy(HERE / f"{name}.db", directory / "journal.db"))
        anyio.run(_opened_and_closed, copy)
        yield copy


@pytest.fixture
def path(migrated: Path, tmp_path: Path) -> Path:
    """A copy of that."""
    return Path(shutil.copy(migrated, tmp_path / "journal.db"))


@pytest.fixture(scope="module")
def found(migrated: Path) -> str:
    """What it says now, as JSON."""
    return json.dumps(answers(migrated))


@pytest.fixture
def expected(name: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return said


def test_there_is_one() -> None:
    assert NAMES


def test_the_schema_is_brought_up_to_date_and_nothing_else(path: Path, expected: dict[str, Any], name: str) -> None:
    assert anyio.run(_opened_and_closed, path) == (expected["events"], expected["head"])
    assert journal_reader.query(path, "SELECT max(number) FROM migrations").rows == [(load().number,)]
    rows = "SELECT * FROM events ORDER BY seq"
    assert journal_reader.query(path, rows, 100_000) == journal_reader.query(HERE / f"{name}.db", rows, 100_000)


def test_the_chain_holds(path: Path) -> None:
    assert journal_reader.verify(path) is None
    assert main(["ctl", "journal", "verify", "--file", str(path)]) == 0


def test_it_says_what_it_said(found: str, expected: dict[str, Any]) -> None:
    """States at many events, the rows of every view, `ctl why` of every step and example, how many events of which
    kind."""
    assert list(differences(expected, json.loads(found))) == []


def test_a_difference_would_be_seen(found: str, expected: dict[str, Any]) -> None:
    other = json.loads(found)
    first = next(iter(other["states"]))
    other["states"][first]["queue"]["pending"] += 1
    del other["views"]["steps"][0]["loss"]
    other["views"]["examples"].pop()
    other["new"] = "is no difference"
    where = [text.split(" ")[0] for text in differences(expected, other)]
    assert where == [f"/states/{first}/queue/pending", "/views/examples", "/views/steps/0/loss"]


def test_every_event_decodes_to_what_is_written(path: Path) -> None:
    """Fields that were written are still there, with the same values; kinds of this code only."""
    for item, _ in journal_reader.recorded(path):
        assert KINDS[item.event.kind] is type(item.event)
    written = {row["seq"]: row for row in journal_reader.events(path, limit=100_000)}
    for item, _ in journal_reader.recorded(path):
        row = written[item.seq]
        if row["version"] == item.event.version:
            assert list(differences(row["body"], msgspec.json.decode(encode_body(item.event)))) == []
            assert item.event.key() == row["key"]


def test_a_snapshot_anywhere_and_the_events_after_it_make_the_same_state(path: Path, expected: dict[str, Any]) -> None:
    whole, tails = State(), {}
    for item, hash_ in journal_reader.recorded(path):
        fold(whole, item)
        if str(item.seq) in expected["states"]:
            tails[item.seq] = hash_, dump_state(whole)
    for seq, (hash_, data) in tails.items():
        state = load_state(data)
        for item, _ in journal_reader.recorded(path, seq, hash_):
            fold(state, item)
        assert state == whole, seq


def differing(bound: TrainerBound) -> set[str]:
    """In what the environment here is not the recorded one, but for the number of threads, which a replay sets."""
    from apollod.trainer.environment import environment

    here = environment(torch.device("cpu"))
    return {name for name, value in bound.versions.items() if name != "threads" and here.get(name) != value}


@pytest.mark.slow
def test_the_first_steps_give_the_recorded_weights(
    path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the libraries and the kind of processor that made the journal; elsewhere a divergence has to name what
    differs."""
    monkeypatch.setattr(offline_trainer, "subprocess", ForkedPopen)
    args = ["replay", "--journal", str(path), "--model", str(tiny_model), "--to", str(STEPS), "--json"]
    code = main(args)
    printed = capsys.readouterr()
    items = [item.event for item, _ in journal_reader.recorded(path)]
    recorded = {event.step: event for event in items if isinstance(event, StepCompleted)}
    bound = next(event for event in items if isinstance(event, TrainerBound))
    if not printed.out:  # the model that is built here is another one
        assert "the base model had" in printed.err
        assert differing(bound), "another base model in the very environment that made the journal"
        pytest.skip(f"not the environment that made the journal: {differing(bound)}")
    told = json.loads(printed.out)
    if code == 0:
        assert told["verified"] and told["steps"] == STEPS and told["fingerprint"] == recorded[STEPS].fingerprint
        return
    divergence = told["first_divergence"]
    assert divergence["expected"] == recorded[divergence["step"]].fingerprint != divergence["found"]
    assert divergence["environment"], "other bits in the very environment that made the journal"
    for name_, values in divergence["environment"].items():
        assert values["recorded"] == bound.versions.get(name_, "") != values["here"]
    pytest.skip(f"not the environment that made the journal: {divergence['environment']}")
