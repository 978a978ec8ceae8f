"""`apollod checkpoint` on real directories, as a person runs it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from safetensors.numpy import load_file
from support import sharded_model as model
from support.commands import ran
from support.daemon import chat_line
from support.kept_history import KeptHistory

from apollod.store.access import WeightsLock
from apollod.store.entry import STATE, UNDO, read_entry

CONFIG = """\
[state]
dir = "{root}"
[model]
path = "{root}/m"
"""


def apollod(*arguments, **env):
    clean = {name: value for name, value in os.environ.items() if name != "APOLLOD_CONFIG"}
    return ran("checkpoint", *arguments, environment={**clean, **env})


@pytest.fixture
def kept(tmp_path):
    """Four checkpoints, the third one full; the state directory holds model, base and checkpoints."""
    kept = KeptHistory(tmp_path, 31, full=(3,)).many(4)
    (tmp_path / "apollod.toml").write_text(CONFIG.format(root=tmp_path))
    return kept


def asked(kept, *arguments):
    """The JSON answer and the exit code."""
    done = apollod(*arguments, "--config", kept.root / "apollod.toml", "--json")
    assert "Traceback" not in done.stderr
    body = json.loads(done.stdout)
    assert body["schema_version"] == 1
    return body, done.returncode


def test_list_shows_every_checkpoint_and_its_state(kept):
    body, code = asked(kept, "list")
    rows = body["checkpoints"]
    assert code == 0
    assert [(row["number"], row["step"], row["fingerprint"], row["full"]) for row in rows] == [
        (number, *kept.was[number][::2], number == 3) for number in range(1, 5)
    ]
    assert [row["state"] for row in rows] == ["reachable", "reachable", "reachable", "in model directory"]
    for row in rows:
        directory = kept.directory(row["step"])
        files = [path for path in directory.rglob("*") if path.is_file() and path.name != "checkpoint.json"]
        assert row["bytes"] == sum(path.stat().st_size for path in files)
        assert (row["delta_bytes"], row["path"]) == ((directory / UNDO).stat().st_size, str(directory))
        assert row["at"].startswith("20")
    assert body["model_dir"] == {
        "path": str(kept.model_dir),
        "step": kept.step,
        "fingerprint": kept.was[4][2],
        "problem": "",
    }
    assert (body["base"], body["notes"]) == (str(kept.base), [])


def test_without_a_configuration_and_for_people(kept):
    by_hand = apollod("list", "--checkpoints", kept.checkpoints, "--model", kept.model_dir)
    by_config = apollod("list", APOLLOD_CONFIG=str(kept.root / "apollod.toml"))
    assert (by_hand.returncode, by_hand.stderr) == (0, "")
    assert by_hand.stdout == by_config.stdout
    lines = by_hand.stdout.splitlines()
    assert len(lines) == 6
    assert "in model directory" in lines[-1]
    assert kept.was[2][2] in lines[3]


def test_an_uncommitted_one_and_broken_ones_are_listed_as_that(kept):
    entry = kept.write(commit=False)
    shutil.rmtree(kept.directory(kept.was[2][0]))
    (kept.directory(kept.was[1][0]) / "apollod/checkpoint.json").write_text("{")
    body, code = asked(kept, "list")
    states = {row["path"].rpartition("/")[2]: row["state"] for row in body["checkpoints"]}
    assert code == 0
    assert states[kept.directory(entry.step).name] == "uncommitted"
    assert states[kept.directory(kept.was[1][0]).name].startswith("broken")
    assert "is not committed" in " ".join(body["notes"])


def test_while_a_sync_is_at_work_the_list_still_comes(kept):
    entry = kept.write(commit=False)
    with WeightsLock(kept.model_dir):
        body, _ = asked(kept, "list")
    assert "are in use by" in body["model_dir"]["problem"]
    assert [row["state"] for row in body["checkpoints"]] == ["reachable"] * 4 + ["being written"]
    assert body["checkpoints"][-1]["step"] == entry.step


def test_show_tells_everything_of_one(kept):
    step = kept.was[2][0]
    body, code = asked(kept, "show", step)
    assert code == 0
    assert (body["number"], body["step"], body["before_step"], body["before_fingerprint"]) == (
        2,
        step,
        *kept.was[1][::2],
    )
    assert body["optimizer"] == {"name": "apollo", "rank": 4}
    assert {way["from"]: way["deltas"] for way in body["ways"]} == {
        str(kept.base): 2,
        str(kept.directory(kept.was[3][0])): 1,
        str(kept.model_dir): 2,
    }
    assert asked(kept, "show", "latest")[0]["number"] == 4
    text = apollod("show", step, "--config", kept.root / "apollod.toml").stdout
    assert str(kept.base) in text
    assert "optimizer           rank: 4" in text


def test_verify_is_silent_damage_is_not(kept):
    done = apollod("verify", "--config", kept.root / "apollod.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 of 4 checkpoints are whole" in done.stdout
    path = kept.directory(kept.was[2][0]) / UNDO
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = apollod("verify", "--config", kept.root / "apollod.toml")
    assert done.returncode == 1
    assert "; its weights can be had" in done.stdout
    assert "3 of 4 checkpoints are whole" in done.stdout
    body, code = asked(kept, "verify")
    assert (code, body["ok"]) == (1, False)
    assert [row["number"] for row in body["checkpoints"] if row["problems"]] == [2]
    assert all(row["reachable"] for row in body["checkpoints"])


def test_export_writes_what_was_there_at_the_step(kept):
    out = kept.root / "out"
    body, code = asked(kept, "export", out, "--step", kept.was[2][0])
    assert code == 0
    assert model.read(out, kept.was[2][1]) == kept.was[2][1]
    assert (body["fingerprint"], body["optimizer"], body["passed_over"]) == (kept.was[2][2], True, [])
    assert read_entry(out).number == 0
    assert load_file(out / STATE)["w.m"][0] == 2
    assert sorted(path.name for path in out.iterdir()) == sorted([*kept.was[2][1], "apollod", "config.json"])
    again = apollod("export", out, "--step", kept.was[2][0], "--config", kept.root / "apollod.toml")
    assert (again.returncode, again.stdout) == (1, "")
    assert "exists already" in again.stderr


def test_the_untrained_weights_can_be_exported_too(kept):
    done = apollod("export", kept.root / "out", "--step", 0, "--config", kept.root / "apollod.toml")
    assert done.returncode == 0
    assert "without the optimizer" in done.stderr
    assert model.read(kept.root / "out", kept.was[0][1]) == kept.was[0][1]


def test_an_export_of_a_real_model_loads_in_transformers(tiny_model, tmp_path):
    """A step that changed every weight a little, from the delta alone."""
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from apollod.store.model_files import read_files
    from apollod.store.pieces import Piece, directory_pieces

    kept = KeptHistory(tmp_path, 0, source=tiny_model)
    files = read_files(kept.model_dir)

    def learned():
        for piece in directory_pieces(kept.base, files):
            yield Piece(piece.file, piece.offset, (np.frombuffer(bytes(piece.data), np.uint16) ^ 1).view(np.uint8))

    kept.write_pieces(learned, 7, {})
    (tmp_path / "apollod.toml").write_text(CONFIG.format(root=tmp_path))
    for step, expected in ((0, kept.base), (7, kept.model_dir)):
        body, code = asked(kept, "export", tmp_path / f"out-{step}", "--step", step)
        assert code == 0, body
        one = AutoModelForCausalLM.from_pretrained(tmp_path / f"out-{step}", dtype="auto")
        other = AutoModelForCausalLM.from_pretrained(expected, dtype="auto")
        assert all(
            torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
        )
        assert AutoTokenizer.from_pretrained(tmp_path / f"out-{step}")("hello")["input_ids"]


def _no_such_step(kept):
    return ["show", 9999, "--config", kept.root / "apollod.toml"], 1, "there are steps 0, "


def _no_number(kept):
    return ["show", "seven", "--config", kept.root / "apollod.toml"], 2, "is no step"


def _nowhere(kept):
    return ["list"], 2, "give --config FILE, or --checkpoints DIR and --model DIR"


def _no_model(kept):
    return ["list", "--checkpoints", kept.checkpoints, "--model", kept.root / "none"], 1, "is no directory"


def _no_checkpoints(kept):
    return ["list", "--checkpoints", kept.root / "none", "--model", kept.model_dir], 1, "is no directory"


def _lost(kept):
    shutil.rmtree(kept.base)
    shutil.rmtree(kept.directory(kept.was[3][0]))
    shutil.rmtree(kept.model_dir)
    kept.model_dir.mkdir()
    arguments = ["export", kept.root / "out", "--step", kept.was[2][0], "--config", kept.root / "apollod.toml"]
    return arguments, 1, "restore from a copy elsewhere"


def _into_the_model(kept):
    return (
        ["export", kept.model_dir / "out", "--step", "latest", "--config", kept.root / "apollod.toml"],
        1,
        "name a directory outside",
    )


CASES = [_no_such_step, _no_number, _nowhere, _no_model, _no_checkpoints, _lost, _into_the_model]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
def test_what_cannot_be_done_is_one_clear_line_and_touches_nothing(kept, case):
    arguments, code, said = case(kept)
    before = kept.everything()
    done = apollod(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert kept.everything() == before


def test_an_empty_history_is_no_error(kept):
    shutil.rmtree(kept.checkpoints)
    done = apollod("list", "--config", kept.root / "apollod.toml")
    assert (done.returncode, "no checkpoints in" in done.stdout) == (0, True)
    assert (
        apollod("export", kept.root / "out", "--step", "latest", "--config", kept.root / "apollod.toml").returncode == 1
    )


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_somebody_elses_checkpoints_are_not_permitted(kept):
    kept.checkpoints.chmod(0)
    done = apollod("list", "--config", kept.root / "apollod.toml")
    kept.checkpoints.chmod(0o755)
    assert done.returncode == 4


@pytest.mark.engine
def test_beside_a_running_daemon(running, tmp_path):
    """Its checkpoints are whole while it goes on, and what is exported of an earlier step is where a replay can
    start."""

    def learned(name):
        before = running.status()["queue"]["trained"]
        running.drop(f"{name}.jsonl", chat_line(f"what is {name}?", "something to export."))
        running.wait_learned(before + 1)
        tool = [sys.executable, "-m", "apollod.cli.checkpoint_tool"]
        sync = [*tool, "sync", "--model-dir", running.model, "--config", running.config]
        done = subprocess.run([*sync, "--json"], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    one, other = learned("checkpoint-cli-1"), learned("checkpoint-cli-2")
    rows = json.loads(apollod("list", "--config", running.config, "--json").stdout)["checkpoints"]
    assert [(row["step"], row["fingerprint"], row["state"]) for row in rows[-2:]] == [
        (one["step"], one["fingerprint"], "reachable"),
        (other["step"], other["fingerprint"], "in model directory"),
    ]
    done = apollod("verify", "--config", running.config)
    assert done.returncode == 0, done.stdout
    done = apollod("export", tmp_path / "out", "--step", one["step"], "--config", running.config, "--json")
    assert json.loads(done.stdout)["fingerprint"] == one["fingerprint"]
    replay = [sys.executable, "-m", "apollod", "replay", "--from", str(one["step"]), "--config", str(running.config)]
    done = subprocess.run(
        [*replay, "--model", tmp_path / "out", "--json"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert (body["verified"], body["steps"], body["fingerprint"]) == (
        True,
        other["step"] - one["step"],
        other["fingerprint"],
    )
