"""`apollo-checkpoint` on real directories, as a person runs it."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import msgspec
import pytest
from safetensors.torch import load_file
from support import sharded_model as model
from support.commands import ran
from support.fingerprints import file_fingerprint

from apollod.core.facts.children import ChildrenState
from apollod.core.state import State
from apollod.store.access import DAEMON, WeightsLock
from apollod.supervisor.status_view import status_view
from apollod.trainer.bind import live_fingerprint
from apollod.wire import messages as msg
from apollod.wire.framing import FrameDecoder, encode_frame
from apollod.wire.status import Journal


def tool(*arguments):
    clean = {name: value for name, value in os.environ.items() if name != "APOLLOD_CONFIG"}
    return ran(*arguments, module="apollod.cli.checkpoint_tool", environment=clean)


@pytest.fixture
def pair(tmp_path):
    """(directory, its bytes, directory of later weights, their bytes): three shards."""
    chance = random.Random(5)
    old = model.model(chance, 3, (20, 40))
    new = model.changed(chance, old, 0.5)
    return model.write(tmp_path / "m", old), old, model.write(tmp_path / "new", new), new


def test_sync_makes_the_directory_hold_the_new_weights_and_nothing_else_changes(pair):
    directory, old, source, new = pair
    done = tool("sync", "--model-dir", directory, "--from-dir", source, "--step", 12, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["schema_version"], answer["generation"], answer["step"]) == (1, 1, 12)
    assert 0 < answer["changed_blocks"] < answer["blocks"]
    assert model.read(directory, new) == new != old
    assert (directory / "config.json").read_text() == "{}"
    assert sorted(path.name for path in (directory / ".apollod").iterdir()) == ["blocks.bin", "weights.lock"]
    again = json.loads(tool("sync", "--model-dir", directory, "--from-dir", source, "--json").stdout)
    assert (again["generation"], again["changed_blocks"]) == (1, 0)


def test_the_source_may_be_sharded_differently(tiny_model, tmp_path):
    import torch
    from safetensors.torch import save_file

    directory = tmp_path / "one"
    shutil.copytree(tiny_model, directory)
    tensors = load_file(directory / "model.safetensors")
    changed = {name: tensor + torch.ones_like(tensor) for name, tensor in tensors.items()}
    names = sorted(changed)
    source = tmp_path / "two"
    source.mkdir()
    shards = {"a.safetensors": names[: len(names) // 2], "b.safetensors": names[len(names) // 2 :]}
    for file, held in shards.items():
        save_file({name: changed[name] for name in held}, source / file)
    index = {"weight_map": {name: file for file, held in shards.items() for name in held}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    done = tool("sync", "--model-dir", directory, "--from-dir", source)
    assert done.returncode == 0, done.stderr
    found = load_file(directory / "model.safetensors")
    assert found.keys() == changed.keys()
    assert all(torch.equal(found[name], changed[name]) for name in names)
    assert tool("fingerprint", "--model-dir", source).stdout == tool("fingerprint", "--model-dir", directory).stdout


def test_the_fingerprint_is_the_trainers(pair, tiny_model):
    for directory, names in ((pair[0], list(pair[1])), (tiny_model, ["model.safetensors"])):
        weights = [directory / name for name in names if name.endswith(".safetensors")]
        expected = live_fingerprint.format(sum(file_fingerprint(path) for path in weights) % (1 << 64))
        assert tool("fingerprint", "--model-dir", directory).stdout.strip() == expected


def test_recover_says_what_it_dropped(pair):
    directory, old, _, _ = pair
    (directory / ".apollod").mkdir()
    (directory / ".apollod/redo.tmp").write_bytes(b"half")
    (directory / ".apollod/new.model-00001-of-00003.safetensors").write_bytes(b"half")
    done = tool("recover", "--model-dir", directory)
    assert (done.returncode, done.stdout.count("dropped")) == (0, 2)
    assert tool("recover", "--model-dir", directory).stdout.splitlines() == ["nothing to finish: the weights are whole"]
    assert model.read(directory, old) == old


def _no_source_and_no_daemon(directory, source):
    return (
        ["sync", "--model-dir", directory],
        3,
        "start it with `apollod run`, name another with --config FILE, or give --from-dir NEW",
    )


def _daemon_is_gone(directory, source):
    _note(directory, directory.parent / "gone.sock")
    return ["sync", "--model-dir", directory], 3, "no daemon answers for"


def _step_of_live_weights(directory, source):
    return ["sync", "--model-dir", directory, "--step", 3], 2, "--step and --accept-edits are for --from-dir"


def _live_weights_of_nowhere(directory, source):
    return ["sync", "--model-dir", directory / "none"], 2, "is no directory"


def _same_directory(directory, source):
    return (
        ["sync", "--model-dir", directory, "--from-dir", f"{directory}/../{directory.name}"],
        2,
        "is the model directory itself",
    )


def _missing_directory(directory, source):
    return ["fingerprint", "--model-dir", directory / "nothing"], 1, "holds neither"


def _missing_shard(directory, source):
    (source / "model-00002-of-00003.safetensors").unlink()
    return (
        ["sync", "--model-dir", directory, "--from-dir", source],
        1,
        "model-00002-of-00003.safetensors cannot be read",
    )


def _other_model(directory, source):
    other = model.write(source.parent / "other", model.model(random.Random(9), 2))
    return ["sync", "--model-dir", directory, "--from-dir", other], 1, "give a directory of the same model"


def _hub_cache(directory, source):
    snapshot = source.parent / "models--org--m/snapshots/abc"
    shutil.copytree(directory, snapshot)
    return ["sync", "--model-dir", snapshot, "--from-dir", source], 1, "cp -a --reflink=auto -L"


def _interrupted_sync(directory, source):
    (directory / ".apollod").mkdir()
    (directory / ".apollod/redo").write_bytes(b"APLREDO1" + bytes(8192))
    return ["fingerprint", "--model-dir", directory], 1, "apollo-checkpoint recover"


CASES = [
    _no_source_and_no_daemon, _daemon_is_gone, _step_of_live_weights, _live_weights_of_nowhere, _same_directory,
    _missing_directory,
    _missing_shard, _other_model, _hub_cache, _interrupted_sync,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
def test_what_cannot_be_done_is_one_clear_line_and_touches_nothing(pair, case):
    directory, old, source, _ = pair
    arguments, code, said = case(directory, source)
    done = tool(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert model.read(directory, old) == old


def test_a_second_writer_is_told_who_holds_the_files(pair):
    directory, old, source, _ = pair
    with WeightsLock(directory, shared=True):
        done = tool("sync", "--model-dir", directory, "--from-dir", source, "--json")
    assert done.returncode == 1
    assert f"pid {os.getpid()}" in done.stderr
    assert json.loads(done.stdout)["committed"] is False
    assert model.read(directory, old) == old


def test_it_loads_no_torch(pair):
    code = (
        "import sys; from apollod.cli.checkpoint_tool import main; main(sys.argv[1:]); assert 'torch' "
        "not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "sync", "--model-dir", pair[0], "--from-dir", pair[2]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# --- live weights -------------------------------------------------------------------------------------------------


def _note(directory, path):
    """As a daemon that serves the directory does."""
    (directory / DAEMON).parent.mkdir(exist_ok=True)
    (directory / DAEMON).write_text(f"{path}\n")


@contextmanager
def daemon(path, serves, checkpoint):
    """Answers on a control socket; the kinds of requests that came."""
    came, listening = [], socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()

    def serve():
        while True:
            try:
                link, _ = listening.accept()
            except OSError:
                return
            with link:
                frames = []
                decoder = FrameDecoder()
                while not frames:
                    frames += decoder.feed(link.recv(65536))
                request = msgspec.msgpack.decode(frames[0], type=msg.Request)
                came.append(type(request).__name__)
                state, journal = (
                    State(children=ChildrenState(engine_dir=str(serves))),
                    Journal(seq=0, bytes=0, head_hash=""),
                )
                status = msg.Reply(status_view(state, 0, journal))
                link.sendall(encode_frame(msg.encode(status if isinstance(request, msg.StatusRequest) else checkpoint)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield came
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


DONE = msg.Reply(
    {"schema_version": 1, "step": 12, "fingerprint": "0123456789abcdef", "path": "/state/checkpoints/step-00000012"}
)


def test_without_from_dir_the_daemon_of_the_directory_writes_its_live_weights(pair, tmp_path):
    directory = pair[0]
    _note(directory, tmp_path / "d.sock")
    (tmp_path / "link").symlink_to(directory)
    with daemon(tmp_path / "d.sock", directory, DONE) as came:
        done = tool("sync", "--model-dir", directory)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"step 12 0123456789abcdef {directory}\n", "")
        assert json.loads(tool("sync", "--model-dir", tmp_path / "link", "--json").stdout) == DONE.body
    assert came == ["StatusRequest", "CheckpointRequest"] * 2


def test_the_configuration_names_a_daemon_too(pair, tmp_path):
    directory = pair[0]
    (tmp_path / "run").mkdir()
    (tmp_path / "apollod.toml").write_text(f'[state]\ndir = "{tmp_path}"\n[model]\npath = "{directory}"\n')
    with daemon(tmp_path / "run/apollod.sock", directory, DONE) as came:
        done = tool("sync", "--model-dir", directory, "--config", tmp_path / "apollod.toml")
    assert (done.returncode, came) == (0, ["StatusRequest", "CheckpointRequest"]), done.stderr


@pytest.mark.parametrize(
    ("serves", "code", "said"), [("/models/other", 2, "serves /models/other, not"), ("", 3, "has no model yet")]
)
def test_a_daemon_of_another_model_is_asked_for_nothing(pair, tmp_path, serves, code, said):
    _note(pair[0], tmp_path / "d.sock")
    with daemon(tmp_path / "d.sock", serves, DONE) as came:
        done = tool("sync", "--model-dir", pair[0])
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)
    assert said in done.stderr
    assert came == ["StatusRequest"]


def test_what_the_daemon_says_against_it_is_passed_on(pair, tmp_path):
    _note(pair[0], tmp_path / "d.sock")
    with daemon(
        tmp_path / "d.sock", pair[0], msg.Failure("the checkpoint was not written", "see `apollod ctl events`")
    ):
        done = tool("sync", "--model-dir", pair[0], "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (1, "the checkpoint was not written")
