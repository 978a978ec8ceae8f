"""What `init` writes and `config check` finds before a daemon is started."""

import json
import os
import tomllib
from pathlib import Path

import anyio
import msgspec
import pytest
from integration.test_commands import daemon_that_says
from support.real_shapes import QWEN_27B

from apollod.adapters.journal.writer import Journal
from apollod.adapters.system import hardware
from apollod.cli import config_command
from apollod.cli.main import main
from apollod.cli.render import FLOAT32_PRODUCTS
from apollod.core import events as ev
from apollod.core.state import State
from apollod.engine.http.callers import key_in
from apollod.model.memory_plan import Device, memory_plan
from apollod.model.shapes import shapes_of
from apollod.supervisor import child_commands, memory_budget
from apollod.supervisor.config import load_config
from apollod.supervisor.status_view import status_view
from apollod.wire import messages as msg
from apollod.wire.status import Journal as JournalStatus


@pytest.fixture(autouse=True)
def few_shipped_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command reads them again: all of them in half a second; test_commands.py has a check with all."""
    monkeypatch.setenv("APOLLOD_QUALITY__LEVELS", "1")


def model_of(path: Path, weights: int = 600, **config: object) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(bytes(weights))
    return path


def init(capsys: pytest.CaptureFixture[str], *args: str) -> dict:
    assert main(["init", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def check(capsys: pytest.CaptureFixture[str], state: Path, model: Path, *args: str) -> dict:
    paths = ["--set", f"model.path={model}", "--set", f"state.dir={state}"]
    code = main(["config", "check", *paths, *args, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is (code == 0)
    return told


# --- init ---------------------------------------------------------------------------------------------------------


def test_init_refuses_a_model_directory_that_does_not_exist_and_makes_nothing(tmp_path, capsys):
    assert main(["init", str(tmp_path / "a"), "--model", str(tmp_path / "nope")]) == 1
    assert "does not exist" in capsys.readouterr().err and not (tmp_path / "a").exists()


def test_init_writes_a_key_that_nobody_else_may_read_and_keeps_one_that_is_there(tmp_path, capsys):
    before = os.umask(0)
    try:
        key = Path(init(capsys, str(tmp_path / "a"))["key"])
        other = Path(init(capsys, str(tmp_path / "b"))["key"])
    finally:
        os.umask(before)
    config = load_config(str(tmp_path / "a" / "apollod.toml"), [], {})
    assert key == config.key_path and child_commands.engine_environment(config)["APOLLOD_KEY_FILE"] == str(key)
    assert [path.stat().st_mode & 0o777 for path in (key, key.parent)] == [0o600, 0o700]
    assert key_in(key) == key.read_text().strip() != key_in(other) and len(key_in(key)) >= 43
    (tmp_path / "a" / "apollod.toml").unlink()
    kept = key.read_text()
    init(capsys, str(tmp_path / "a"))
    assert key.read_text() == kept


def test_init_writes_absolute_paths(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_of(tmp_path / "m")
    made = init(capsys, "a", "--model", "m")
    written = load_config(made["config"], [], {})
    assert written.model.path == str(tmp_path / "m") and written.state_dir == tmp_path / "a" / "state"


@pytest.mark.parametrize("name", ['a "quoted" \\ one', "a\nline # \t", "caf\u00e9 \U0001f600 \x7f", "{directory}"])
def test_init_writes_any_path_as_toml(tmp_path, capsys, name):
    model = model_of(tmp_path / name)
    made = init(capsys, str(tmp_path / f"{name}-d"), "--model", str(model))
    written = load_config(made["config"], [], {})
    assert written.model.path == str(model) and written.inbox_dir == tmp_path / f"{name}-d" / "inbox"
    assert main(["config", "show", "--config", made["config"]]) == 0
    assert tomllib.loads(capsys.readouterr().out)["model"]["path"] == str(model)


@pytest.mark.parametrize("mib", [183_359, 69_700])
def test_init_on_a_machine_with_a_gpu_writes_what_fits_it(tmp_path, capsys, monkeypatch, mib):
    """nvidia-smi is a real process; only the device node is not there."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\necho {mib}\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for module in (child_commands, memory_budget):
        monkeypatch.setattr(module, "has_gpu", lambda: True)
    model = model_of(tmp_path / "m", **QWEN_27B)
    monkeypatch.setattr(config_command, "read_shapes", lambda directory: shapes_of(QWEN_27B, {}))
    made = init(capsys, str(tmp_path / "a"), "--model", str(model))
    written = load_config(made["config"], [], {})
    device = memory_budget.this_device()
    assert device == Device(mib << 20, gpu=True)
    assert not memory_plan(shapes_of(QWEN_27B, {}), device, memory_budget.asked(written, device)).missing
    assert "made for a GPU of" in Path(made["config"]).read_text()
    assert (written.engine.args[1] == "32768") is (mib > 100_000)
    assert written.trainer.max_tokens == 4096


def test_init_refuses_a_model_that_no_setting_fits_to_the_gpu(tmp_path, capsys, monkeypatch):
    for module in (child_commands, memory_budget):
        monkeypatch.setattr(module, "has_gpu", lambda: True)
    monkeypatch.setattr(hardware, "device_bytes", lambda: 24 << 30)
    monkeypatch.setattr(config_command, "read_shapes", lambda directory: shapes_of(QWEN_27B, {}))
    assert main(["init", str(tmp_path / "a"), "--model", str(model_of(tmp_path / "m"))]) == 1
    said = capsys.readouterr().err
    assert "do not fit this GPU of 25.8 GB" in said and "use a smaller model" in said and not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 2048}, "2048"),
        ({"text_config": {"max_position_embeddings": 262144}}, "32768"),
        ({}, "32768"),
        ({"max_position_embeddings": 8192, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "16384"),
    ],
)
def test_init_writes_a_length_that_the_model_has(tmp_path, capsys, config, length):
    made = init(capsys, str(tmp_path / "a"), "--model", str(model_of(tmp_path / "m", **config)))
    assert load_config(made["config"], [], {}).engine.args == ("--max-model-len", length)


# --- config check -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "fits"),
    [
        (["--max-model-len", "2048"], True),
        (["--max-model-len", "2049"], False),
        (["--max-model-len=4096"], False),
        (["--max_model_len", "32k"], False),
        (["--max-model-len", "2K"], True),
        (["--max-model-len", "auto"], True),
        (["--max-model-len", "4096", "--hf-overrides", "{}"], True),
        ([], True),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_length_that_the_model_does_not_have_is_refused(tmp_path, capsys, args, fits, nested):
    length = {"max_position_embeddings": 2048}
    model = model_of(tmp_path / "m", **({"text_config": length} if nested else length))
    told = check(capsys, tmp_path / "s", model, "--set", f"engine.args={json.dumps(args)}")
    assert told["ok"] is fits
    assert fits or "the model has 2048 positions; set --max-model-len to 2048 or less" in told["error"]


def started(model: Path) -> ev.Event:
    return ev.DaemonStarted(pid=1, version_name="x", settings=ev.Settings(model_path=str(model)))


BOUND = ev.TrainerBound(pid=2, fingerprint="f", parameters=1, elements=1)


def journal(state: Path, *events: ev.Event) -> None:
    async def write() -> None:
        opened = await Journal.open(state / "journal.db")
        await opened.append(list(events), 1)
        await opened.close()

    state.mkdir()
    anyio.run(write)


def test_state_and_model_are_compared(tmp_path, capsys):
    model, other = model_of(tmp_path / "m"), model_of(tmp_path / "other")
    journal(tmp_path / "s", started(tmp_path / "nope"), started(model), BOUND, started(other))
    assert check(capsys, tmp_path / "s", model)["ok"]
    error = check(capsys, tmp_path / "s", other)["error"]
    assert f"this journal belongs to the model {model}, the configuration names {other}; set [model] path" in error


def test_a_state_that_was_never_bound_goes_with_any_model(tmp_path, capsys):
    journal(tmp_path / "s", started(tmp_path / "nope"))
    assert check(capsys, tmp_path / "s", model_of(tmp_path / "m"))["ok"]


def test_the_disk_that_history_takes(tmp_path, capsys):
    model = model_of(tmp_path / "m", weights=6_000)
    assert check(capsys, tmp_path / "new", model)["history_bytes"] == 20 * 1_000
    committed = [
        ev.CheckpointCommitted(step=n, path=f"/c/{n}", fingerprint="f", bytes=bytes_, seconds=1.0)
        for n, bytes_ in enumerate((100, 300, 0))
    ]
    journal(tmp_path / "s", started(model), BOUND, *committed)
    told = check(capsys, tmp_path / "s", model)
    assert told["history_bytes"] == 20 * 200 and told["free_bytes"] > 0
    assert told["keep_bytes"] == pytest.approx(told["free_bytes"] / 2, rel=0.05), "half of the free disk"
    unlimited = check(capsys, tmp_path / "s", model, "--set", "checkpoint.keep_bytes=0")
    assert (unlimited["keep_bytes"], unlimited["history_bytes"]) == (0, 20 * 200)
    limited = check(capsys, tmp_path / "s", model, "--set", "checkpoint.keep_bytes=500")
    assert (limited["keep_bytes"], limited["history_bytes"]) == (500, 500)
    assert main(["config", "check", "--set", f"model.path={model}", "--set", f"state.dir={tmp_path / 's'}"]) == 0
    out = capsys.readouterr().out
    assert "20 checkpoints take about 3.9 KiB" in out and "the oldest go first above" in out


def test_what_the_history_holds_counts_as_room_for_it(tmp_path, capsys):
    model, one = model_of(tmp_path / "m", weights=6_000), tmp_path / "s/checkpoints/step-00000001/apollod"
    empty = check(capsys, tmp_path / "s", model)["keep_bytes"]
    one.mkdir(parents=True)
    with (one / "undo.delta").open("wb") as file:
        file.truncate(1 << 40)  # without blocks: the disk is as free as before
    assert check(capsys, tmp_path / "s", model)["keep_bytes"] == pytest.approx(empty + (1 << 39), rel=0.01)


@pytest.mark.parametrize(("ours", "served_here"), [(False, True), (True, True), (False, False)])
def test_another_daemon_on_the_model_directory_is_seen(tmp_path, capsys, ours, served_here):
    model = model_of(tmp_path / "m")
    (tmp_path / "s").mkdir()
    serving = status_view(
        State(),
        1,
        JournalStatus(seq=0, bytes=0, head_hash="", path=str(tmp_path / ("s" if ours else "t") / "journal.db")),
    )
    path = str(model if served_here else tmp_path / "another")
    serving = msgspec.structs.replace(serving, engine=msgspec.structs.replace(serving.engine, path=path))
    address = tmp_path / "sock"
    (model / ".apollod").mkdir()
    (model / ".apollod" / "daemon").write_text(f"{address}\n")
    assert check(capsys, tmp_path / "s", model)["ok"], "nobody answers there"
    with daemon_that_says(address, msg.Reply(msgspec.to_builtins(serving))):
        told = check(capsys, tmp_path / "s", model)
    assert told["ok"] is (ours or not served_here)
    assert told["ok"] or f"another apollod ({address}) serves and trains {model}" in told["error"]


# --- products -----------------------------------------------------------------------------------------------------


def test_a_processor_without_bf16_instructions_is_named_with_what_it_costs(tmp_path, capsys, monkeypatch):
    """Asked for a machine without a GPU, whatever this one has."""
    monkeypatch.setenv("APOLLOD_DEVICE", "cpu")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    model = model_of(tmp_path / "m")
    assert check(capsys, tmp_path / "s", model)["products"] == "float32"
    assert check(capsys, tmp_path / "s", model, "--set", "trainer.products=bf16")["products"] == "bf16"
    paths = ["--set", f"model.path={model}", "--set", f"state.dir={tmp_path / 's'}"]
    assert main(["config", "check", *paths]) == 0
    assert f"products: {FLOAT32_PRODUCTS}" in capsys.readouterr().out.splitlines()
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert main(["config", "check", *paths, "--set", "trainer.products=bf16"]) == 0
    assert "products" not in capsys.readouterr().out
