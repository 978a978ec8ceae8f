"""Bytes a day and days until the disk is full, from the last day of events."""

import json
from pathlib import Path

import anyio
import pytest
from support.journals import paused

from apollod.adapters.journal import journal_file as module
from apollod.adapters.journal.journal_file import growth
from apollod.adapters.journal.writer import Journal
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.schedules import DAY_NS, SECOND_NS

HOUR_NS = 3600 * SECOND_NS
BEGAN_NS = 1_700_000_000 * SECOND_NS


def written(path: Path, *batches: tuple[float, list[ev.Event]]) -> Path:
    """A journal with events at these hours."""

    async def write() -> None:
        journal = await Journal.open(path)
        for hour, events in batches:
            await journal.append(events, BEGAN_NS + int(hour * HOUR_NS))
        await journal.close()

    anyio.run(write)
    return path


def committed(step: int, size: int) -> ev.CheckpointCommitted:
    return ev.CheckpointCommitted(step=step, path=f"/c/{step}", fingerprint="f", bytes=size, seconds=1.0)


def test_a_day_counts_and_what_was_before_it_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "free_bytes", lambda path: 10_000_000)
    old, new = [paused(n) for n in range(300)], [paused(n) for n in range(98)]
    path = written(tmp_path / "j.db", (0, [*old, committed(1, 7_000)]), (48, new), (71, [committed(2, 500_000)]))
    told = growth(path)
    assert told is not None
    size = path.stat().st_size
    assert told.journal_per_day == pytest.approx(size * 99 / 400 * 24 / 23, rel=1e-3)
    assert told.history_per_day == pytest.approx(500_000 * 24 / 23, rel=1e-3)
    assert told.days_left == round(10_000_000 / (told.journal_per_day + told.history_per_day), 1)


def test_a_checkpoint_that_was_removed_made_room(tmp_path):
    events = [committed(3, 500), ev.CheckpointRemoved(step=1, path="/c/1")]
    path = written(tmp_path / "j.db", (0, [committed(1, 400)]), (30, [paused(1)]), (50, events))
    assert growth(path).history_per_day == int((500 - 400) * DAY_NS / (20 * HOUR_NS))
    smaller = [committed(4, 10), ev.CheckpointRemoved(step=3, path="/c/3")]
    path = written(tmp_path / "k.db", (0, [committed(3, 400)]), (30, [paused(1)]), (50, smaller))
    assert growth(path).history_per_day == 0


def test_a_young_journal_says_nothing(tmp_path):
    assert growth(written(tmp_path / "j.db")) is None
    assert growth(written(tmp_path / "k.db", (0, [paused(1)]), (0.1, [paused(2)]))) is None


def test_config_check_says_it(tmp_path, capsys):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").touch()
    written(tmp_path / "journal.db", (0, [paused(1)]), (12, [committed(1, 1 << 30)]))
    check = ["config", "check", "--set", f"model.path={model}", "--set", f"state.dir={tmp_path}"]
    assert main([*check, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["growth"]["history_per_day"] == 2 << 30
    assert main(check) == 0
    assert "history 2.0 GiB a day; the disk is full in" in capsys.readouterr().out
