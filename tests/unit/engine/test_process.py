"""A child's life and its imports, with real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apollod.engine import guards

CHILD = """
import os, sys, time
from apollod.engine.lifetime import die_with_parent
die_with_parent(lambda: os.getppid() == int(sys.argv[1]))
print("up", flush=True)
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""
ROOT = str(Path(guards.__file__).parents[2])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_parent_takes_its_child_along() -> None:
    environment = os.environ | {"PYTHONPATH": ROOT}
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], env=os.environ | {"PYTHONPATH": ROOT}, check=False, timeout=20)
    assert done.returncode == -signal.SIGKILL


def test_children_import_what_they_need() -> None:
    """The subprocess in which vLLM inspects a model class imports torchvision before it loads any plugin."""
    paths = os.pathsep.join((str(guards.SITE), os.environ.get("PYTHONPATH", "")))
    code = "import sys, transformers.image_utils; print([f for f in sys.meta_path if type(f).__name__ == 'LazyGuard'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"  # the finder has left again


def test_protect_tells_children_only_where_something_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/x")
    monkeypatch.setattr(guards, "apply", lambda: False)
    guards.protect()
    assert os.environ["PYTHONPATH"] == "/x"
    monkeypatch.setattr(guards, "apply", lambda: True)
    guards.protect()
    assert os.environ["PYTHONPATH"] == f"{guards.SITE}:/x"
