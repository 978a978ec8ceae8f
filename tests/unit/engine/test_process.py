"""A child's life and its imports, with real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from apollod import engine

CHILD = """
import os, sys, time
from apollod.adapters.system.own_process import die_with_parent
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
SPAWNER = """
import multiprocessing, time
child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
child.start()
time.sleep(1)
print(child.pid, flush=True)
time.sleep(60)
"""
ROOT = str(Path(engine.__file__).parents[2])
SITE = Path(engine.__file__).parent / "site"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_a_killed_parent_takes_its_child_along() -> None:
    environment = os.environ | {"PYTHONPATH": ROOT}
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.send_signal(signal.SIGKILL)
    assert gone(child)


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "1"], env=os.environ | {"PYTHONPATH": ROOT}, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL


def test_a_spawned_process_of_the_engine_is_tied_to_its_parent() -> None:
    """multiprocessing's spawn, as vLLM uses it, with a package's __main__ on top, which is not imported again."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(SITE), ROOT))}
    with subprocess.Popen(
        [sys.executable, "-c", SPAWNER], stdout=subprocess.PIPE, env=environment, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.send_signal(signal.SIGKILL)
    assert gone(child)


def test_children_import_what_they_need() -> None:
    """The subprocess in which vLLM inspects a model class imports torchvision before it loads any plugin."""
    paths = os.pathsep.join((str(SITE), os.environ.get("PYTHONPATH", "")))
    code = "import gc, sys, transformers; gc.collect(); import transformers.image_utils; print(sys.meta_path)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "LazyGuard" not in done.stdout  # it has left again
