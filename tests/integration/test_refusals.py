"""What cannot be served is said in one line that tells what to do; the daemon stays up, and goes on once it is
mended."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.commands import ran
from support.daemon import STUB, Daemon
from support.fork_server import fork_server

from apollod.adapters.ipc.channel import Link
from apollod.errors import LinkClosed, WeightsLocked
from apollod.store.access import WeightsLock
from apollod.supervisor.child_commands import engine_tmp_dir
from apollod.supervisor.config import load_config
from apollod.wire import messages


@contextmanager
def daemon_on(root: Path, model: Path) -> Iterator[Daemon]:
    daemon = Daemon(root, model)
    try:
        yield daemon
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.stop()


def broken_model(source: Path, target: Path, how: str) -> Path:
    if how == "missing":
        return target
    shutil.copytree(source, target)
    if how == "not safetensors":
        for file in target.glob("*.safetensors"):
            file.rename(file.with_suffix(".bin"))
    else:
        config = json.loads((target / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "awq", "bits": 4}
        (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("missing", ["does not exist", "[model] path"]),
        ("not safetensors", ["safetensors", "convert"]),
        ("quantized", ["awq", "bf16"]),
    ],
)
def test_a_model_that_cannot_be_shared(tiny_model, tmp_path, how, words):
    with daemon_on(tmp_path / "d", broken_model(tiny_model, tmp_path / "m", how)) as daemon:
        daemon.start()
        status = daemon.wait(lambda s: s["error"], "the refusal", 180)
        assert status["state"] == "degraded" and status["engine"]["pid"] is None
        for word in words:
            assert word in status["error"]
        assert "Traceback" not in daemon.log()
        assert status["error"] in daemon.ctl("status").stdout
        if how == "missing":
            shutil.copytree(tiny_model, daemon.model)
            daemon.ctl("resume")
            daemon.wait(lambda s: s["engine"]["pid"] is not None, "the engine to be started", 180)


def test_a_busy_port(tiny_model, tmp_path):
    with daemon_on(tmp_path / "d", tiny_model) as daemon, socket.socket() as squatter:
        squatter.bind(("127.0.0.1", daemon.port))
        squatter.listen()
        daemon.start()
        status = daemon.wait(lambda s: s["error"], "the refusal", 180)
        assert f"port {daemon.port}" in status["error"] and "[engine] port" in status["error"]


def test_a_temporary_directory_that_is_not_ours(tiny_model, tmp_path, monkeypatch):
    """Somebody may have put a link where the engine's sockets are to lie: not followed, and no end of the daemon."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with daemon_on(tmp_path / "d", tiny_model) as daemon:
        link = engine_tmp_dir(load_config(str(daemon.config), [], {}))
        link.symlink_to(tmp_path)
        daemon.start()
        status = daemon.wait(lambda s: s["error"], "the refusal", 180)
        assert str(link) in status["error"] and "Traceback" not in daemon.log()
        assert daemon.config.exists(), "what the link points to is untouched"


def test_a_stale_socket_and_a_file_in_its_place(tiny_model, tmp_path):
    with daemon_on(tmp_path / "d", tmp_path / "missing") as daemon:
        daemon.socket.parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(daemon.socket))
        daemon.start()
        daemon.wait(lambda s: s["error"], "an answer on the socket", 180)
        assert daemon.socket.stat().st_mode & 0o777 == 0o600
        assert daemon.socket.parent.stat().st_mode & 0o777 == 0o700
        daemon.stop()
        assert not daemon.socket.exists()


def test_under_a_service_manager_the_socket_is_found_by_the_configuration_alone(tmp_path):
    """$RUNTIME_DIRECTORY is the daemon's, and not in the environment of whoever asks it."""
    runtime = Path(tempfile.mkdtemp(prefix="apollod-run-"))
    with daemon_on(tmp_path / "d", tmp_path / "missing") as daemon:
        daemon.start({"RUNTIME_DIRECTORY": str(runtime)})
        daemon.wait(lambda s: s["error"], "an answer through the link", 180)
        assert daemon.socket.is_symlink() and (runtime / "apollod.sock").is_socket()
        assert json.loads(daemon.ctl("status", "--json").stdout)["paths"]["socket"] == str(runtime / "apollod.sock")
        daemon.kill()
        assert daemon.socket.is_symlink()
        daemon.start()  # by hand, after a crash
        daemon.wait(lambda s: s["error"], "an answer on the socket itself", 180)
        assert daemon.socket.is_socket() and not daemon.socket.is_symlink()
        daemon.kill()
        daemon.start({"RUNTIME_DIRECTORY": str(runtime)})
        daemon.wait(lambda s: s["error"], "an answer through the link", 180)
        daemon.stop()
        assert not daemon.socket.is_symlink() and not (runtime / "apollod.sock").exists()
    runtime.rmdir()


def test_no_daemon_is_exit_code_3(tmp_path):
    daemon = Daemon(tmp_path, tmp_path / "missing")
    done = daemon.ctl("status", check=False)
    assert done.returncode == 3 and "apollod run" in done.stderr and done.stdout == ""


@pytest.fixture(scope="module")
def without_a_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that has refused its model and answers, shared: leave it as it is."""
    root = tmp_path_factory.mktemp("without")
    with daemon_on(root / "d", root / "missing") as daemon:
        daemon.start()
        daemon.wait(lambda s: s["error"], "an answer on the socket", 180)
        yield daemon


def test_a_stranger_on_the_socket_costs_nothing(without_a_model):
    for garbage in (b"\xff" * 64, (5).to_bytes(4, "big") + b"hello", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(without_a_model.socket))
            stranger.sendall(garbage)
            stranger.settimeout(10)
            assert stranger.recv(100) == b""
    assert without_a_model.status()["schema_version"] == 1
    assert "Traceback" not in without_a_model.log()


@pytest.mark.parametrize("role", ["trainer", "engine-worker", "engine-api"])
def test_a_process_that_is_no_child_cannot_play_one(without_a_model, role):
    """It would be handed the weights, or could hand over a manifest."""
    said = without_a_model.log().count("children are started by the daemon only")
    link = Link.connect(str(without_a_model.socket), 10)
    link.send(messages.Hello(role, os.getpid()))
    with pytest.raises(LinkClosed):
        link.receive()
    assert without_a_model.log().count("children are started by the daemon only") == said + 1


def test_a_damaged_journal_is_named_and_not_touched(tiny_model, tmp_path):
    daemon = Daemon(tmp_path / "d", tiny_model)
    daemon.journal.parent.mkdir(parents=True)
    daemon.journal.write_bytes(b"this is no database, however it is called" * 100)
    before = daemon.journal.read_bytes()
    done = ran("run", "--config", daemon.config)
    assert done.returncode == 1 and str(daemon.journal) in done.stderr and "Traceback" not in done.stderr
    assert daemon.journal.read_bytes() == before


# --- a model directory that is not ours, in use, or half written ----------------------------------------------------


def test_a_model_in_a_shared_cache_is_refused_with_the_command_that_makes_a_private_copy(
    tiny_model, tmp_path, monkeypatch
):
    cached = tmp_path / "cache" / "hub" / "models--me--tiny" / "snapshots" / "0123abcd"
    shutil.copytree(tiny_model, cached)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with daemon_on(tmp_path / "d", tmp_path / "none") as daemon:
        daemon.config.write_text(daemon.config.read_text().replace(str(tmp_path / "none"), str(cached)))
        checked = ran("config", "check", "--config", daemon.config)
        assert checked.returncode == 1 and "cp -a --reflink=auto" in checked.stderr
        before = {file: file.stat().st_mtime_ns for file in cached.rglob("*")}
        daemon.start()
        error = daemon.wait(lambda s: s["error"], "the refusal", 180)["error"]
        assert "Hugging Face cache" in error and error in daemon.ctl("status").stdout
        assert {file: file.stat().st_mtime_ns for file in cached.rglob("*")} == before
        command = error.partition("`")[2].rpartition("`")[0]
        subprocess.run(command, shell=True, check=True)
        copy = tmp_path / "home" / "models" / "tiny"
        assert (copy / "model.safetensors").read_bytes() == (tiny_model / "model.safetensors").read_bytes()


def test_weights_that_somebody_writes_are_not_loaded_and_what_a_crash_left_is_finished_first(tiny_model, tmp_path):
    """A sync that was killed after its commit, and one that is still under way."""
    with daemon_on(tmp_path / "d", tiny_model) as daemon:
        new = tmp_path / "new"
        shutil.copytree(daemon.model, new)
        weights = bytearray((new / "model.safetensors").read_bytes())
        weights[-64:] = bytes(64)
        (new / "model.safetensors").write_bytes(weights)
        leave_a_redo(daemon.model, new)
        assert (daemon.model / ".apollod" / "redo").exists()
        with WeightsLock(daemon.model):
            daemon.start(engine_that_waits(tmp_path))
            error = daemon.wait(lambda s: s["error"], "the refusal", 180)["error"]
            assert f"in use by pid {os.getpid()}" in error and "Traceback" not in daemon.log()
        daemon.ctl("resume")
        daemon.wait(lambda s: s["engine"]["pid"] is not None, "the engine to be started", 180)
        assert not (daemon.model / ".apollod" / "redo").exists()
        assert (daemon.model / "model.safetensors").read_bytes() == bytes(weights)
        with pytest.raises(WeightsLocked, match="reads"), WeightsLock(daemon.model):
            pass
        (tmp_path / "go").touch()
        daemon.wait_ready()
        with WeightsLock(daemon.model):
            pass  # it has read them
        assert (daemon.model / ".apollod" / "daemon").read_text().strip() == str(daemon.socket)


def engine_that_waits(directory: Path) -> dict[str, str]:
    """The environment of a daemon whose engine loads its weights once `directory`/go is there."""
    waits = f"sys.argv[0] == {STUB!r} and not os.path.exists({str(directory / 'go')!r})"
    (directory / "sitecustomize.py").write_text(f"import os, sys, time\nwhile {waits}:\n    time.sleep(0.02)\n")
    return {"PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])}


def leave_a_redo(model: Path, new: Path) -> None:
    """Sync `new` into `model` in a process that dies right after the commit."""
    code = (
        "import os, sys; from pathlib import Path; from apollod.store import sync; from apollod.store.model_files "
        "import read_files;"
        "from apollod.store.pieces import directory_pieces; sync.Finishing.put = lambda _: os._exit(9);"
        "sync.sync(Path(sys.argv[1]), directory_pieces(Path(sys.argv[2]), read_files(Path(sys.argv[1]))), 7)"
    )
    assert fork_server().start(["-c", code, str(model), str(new)], os.environ).wait(60) == 9
