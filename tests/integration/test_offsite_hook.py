"""contrib/hooks/rsync-offsite.sh against a local target, with real files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import sharded_model as model
from support.kept_history import KeptHistory

from apollod.store.access import WeightsLock
from apollod.store.history import History
from apollod.store.verify import verify

SCRIPT = Path(__file__).parents[2] / "contrib/hooks/rsync-offsite.sh"

# Copies as rsync does here, and says whether a sync could have come between.
STUB = """\
#!{python}
import fcntl, os, shutil, sys
source, target = (path.rstrip("/") for path in sys.argv[-2:])
lock = open(os.environ["APOLLOD_MODEL_DIR"] + "/.apollod/weights.lock")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    sys.exit("a sync could have come between")
except BlockingIOError:
    pass
if os.environ.get("STUB_FAILS", "") in target and os.environ.get("STUB_FAILS"):
    sys.exit(23)
shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.tmp-*", ".apollod"))
"""


@pytest.fixture
def kept(tmp_path):
    return KeptHistory(tmp_path, 41).many(3)


def hook(kept, target, **env):
    """As the daemon runs it after the newest checkpoint."""
    number = max(kept.was)
    ours = {
        "APOLLOD_CHECKPOINT_STEP": str(kept.step), "APOLLOD_CHECKPOINT_PATH": str(kept.directory(kept.step)),
        "APOLLOD_CHECKPOINT_FINGERPRINT": kept.was[number][2], "APOLLOD_MODEL_DIR": str(kept.model_dir),
    }  # fmt: skip
    return subprocess.run(
        [SCRIPT, str(target)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **ours, **env},
    )


@pytest.fixture(params=["rsync", "stub"])
def path(request, tmp_path):
    """PATH with the real rsync, or with a stand-in that also looks at the lock."""
    if request.param == "rsync":
        if shutil.which("rsync") is None:
            pytest.skip("rsync is not installed")
        return os.environ["PATH"]
    stub = tmp_path / "bin/rsync"
    stub.parent.mkdir()
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    return f"{stub.parent}:{os.environ['PATH']}"


def test_the_copy_is_a_whole_history_of_its_own(kept, tmp_path, path):
    target = tmp_path / "far/away"
    target.mkdir(parents=True)
    (kept.checkpoints / "step-00000099.tmp-7").mkdir()
    for _ in range(2):
        done = hook(kept, target, PATH=path)
        assert done.returncode == 0, done.stderr
        assert kept.was[max(kept.was)][2] in done.stdout
        assert model.read(target / "model", kept.weights) == kept.weights
        assert not (target / "model/.apollod").exists()
        history = History.read(target / "checkpoints", target / "model")
        assert [held.entry.number for held in history.held] == sorted(kept.was)[1:]
        assert (history.uncommitted, history.broken) == (None, [])
        assert verify(history).ok
        shutil.rmtree(target / "model/.apollod")
        kept.write()


def test_what_did_not_work_is_the_last_line(kept, tmp_path):
    stub = tmp_path / "bin/rsync"
    stub.parent.mkdir()
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    done = hook(kept, tmp_path / "far", PATH=f"{stub.parent}:{os.environ['PATH']}", STUB_FAILS="model")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"rsync-offsite: model not copied to {tmp_path}/far (rsync ended with 23)"


def test_it_waits_for_a_sync(kept, tmp_path, path):
    (tmp_path / "far").mkdir()
    with WeightsLock(kept.model_dir), pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([SCRIPT, str(tmp_path / "far")], timeout=1, check=False, env={
            **os.environ, "PATH": path, "APOLLOD_MODEL_DIR": str(kept.model_dir), "APOLLOD_CHECKPOINT_STEP": "1",
            "APOLLOD_CHECKPOINT_PATH": str(kept.directory(kept.step)),
        })  # fmt: skip
    assert not list((tmp_path / "far").iterdir())


def test_without_the_daemons_variables_it_says_so(tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("APOLLOD_")}
    done = subprocess.run([SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60, env=clean)
    assert done.returncode != 0
    assert "APOLLOD_MODEL_DIR" in done.stderr
