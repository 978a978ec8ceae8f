"""What is forked for tests is a process like one that was started: environment, streams, exit codes, death with its
parent."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.fork_server import ForkServer, commands_server, fork_server, said


def test_it_has_one_thread_and_nothing_of_ours_before_the_fork() -> None:
    """Else a fork could lose a pool of threads, or a module have read another environment."""
    assert len(os.listdir(f"/proc/{fork_server().process.pid}/task")) == 1
    names = "[name for name in sys.modules if name.partition('.')[0] == 'apollod']"
    assert said(f"import sys; print({names}, 'torch' in sys.modules)") == (0, "[] True\n")
    assert len(os.listdir(f"/proc/{commands_server().process.pid}/task")) == 1


def test_exit_codes_and_signals_are_its_own() -> None:
    assert said("import sys; sys.exit(3)")[0] == 3
    assert said("import sys; sys.exit('no')") == (1, "no\n")
    code, text = said("1 / 0")
    assert code == 1 and text.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert said("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")[0] == -signal.SIGKILL
    sleeping = fork_server().start(["-c", "import time; time.sleep(60)"], os.environ)
    assert sleeping.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        sleeping.wait(0.1)
    sleeping.terminate()
    assert sleeping.wait(10) == -signal.SIGTERM == sleeping.poll()
    sleeping.kill()  # of one that is gone


def test_environment_and_arguments_are_its_own(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ.get('MARK'), 'PATH' in os.environ, sys.orig_argv[1], os.getppid())"
    _, text = said(code, environment={"MARK": "yes"})
    assert text.split() == ["yes", "True", "-c", str(fork_server().process.pid)]
    assert said("import tempfile; print(tempfile.gettempdir())", environment={"TMPDIR": str(tmp_path)})[
        1
    ].strip() == str(tmp_path)


def test_two_steps_of_arithmetic_with_several_threads_after_the_fork() -> None:
    """The pool of threads is made in the child."""
    code = (
        "import torch; torch.set_num_threads(2); a = torch.ones(2000, 2000); print(float((a @ a).sum()), "
        "torch.get_num_threads())"
    )
    assert said(code) == (0, "8000000000.0 2\n")


def test_children_die_with_the_server() -> None:
    server = ForkServer("nothing")
    code = (
        "import ctypes, signal, time; ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"  # as apollod.trainer does
        "time.sleep(60)"
    )
    child = server.start(["-c", code], os.environ)
    time.sleep(0.5)
    server.process.kill()
    server.process.wait()
    deadline = time.monotonic() + 120
    while (
        Path(f"/proc/{child.pid}/stat").exists() and "Z" not in Path(f"/proc/{child.pid}/stat").read_text().split()[2]
    ):
        assert time.monotonic() < deadline, "it outlived its parent"
        time.sleep(0.05)
