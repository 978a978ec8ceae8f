"""What is forked for tests is a process like one that was started: environment, streams, exit codes, death with its
parent."""

import ast
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fork_server import ForkServer, commands_server, engines_server, fork_server, said

import apollod
from apollod.failpoints import VARIABLE


def test_it_has_one_thread_before_the_fork() -> None:
    """Else a fork could lose a pool of threads."""
    assert said("import sys; print('torch' in sys.modules, 'vllm' in sys.modules)") == (0, "True False\n")
    for server in (fork_server(), commands_server()):
        assert len(os.listdir(f"/proc/{server.process.pid}/task")) == 1


def test_one_that_answers_too_late_gives_no_later_request_a_wrong_process(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ForkServer("nothing")
    monkeypatch.setattr("support.fork_server.START_S", 0.0)
    with pytest.raises(AssertionError, match="does not answer"):
        server.start(["-c", "pass"], os.environ)
    monkeypatch.undo()
    server.process.wait(60)
    with pytest.raises((AssertionError, OSError)):
        server.start(["-c", "pass"], os.environ)


def test_what_is_read_from_the_environment_at_import_is_read_again() -> None:
    code = "import sys; known = 'apollod.failpoints' in sys.modules; from apollod import failpoints as f; "
    code += "print(known, f.environment_of('trainer'))"
    point = {VARIABLE: "trainer.step.begun:2"}
    assert said(code, environment=point) == (0, f"True {point}\n")
    assert said(code) == (0, "True {}\n")
    code, text = said(code, environment={VARIABLE: "nothing"})
    assert code == 1 and "ConfigError" in text and "is not a failpoint" in text


def test_nothing_else_is_read_from_the_environment_at_import() -> None:
    package = Path(apollod.__file__).parent
    readers = {file for file in package.rglob("*.py") if any(_read_at_import(ast.parse(file.read_text())))}
    assert readers == {package / "failpoints.py"}


def _read_at_import(node: ast.AST) -> Iterator[str]:
    """What is executed at import of the names that tell of this process and its environment."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if isinstance(child, ast.Attribute) and child.attr in ("environ", "getenv", "getpid", "getcwd"):
                yield child.attr
            yield from _read_at_import(child)


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


@pytest.mark.engine
def test_that_of_engines_has_one_thread_and_vllm() -> None:
    server = engines_server()
    with tempfile.TemporaryFile("w+") as out:
        code = "import sys; print('vllm' in sys.modules)"
        assert server.start(["-c", code], os.environ, (0, out, out)).wait(120) == 0
        out.seek(0)
        assert out.read() == "True\n"
    assert len(os.listdir(f"/proc/{server.process.pid}/task")) == 1


def test_a_module_that_python_runs_at_its_start_is_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.mark = __file__")
    code = "import sys; print(sys.mark, sys.path[0])"
    assert said(code, environment={"PYTHONPATH": str(tmp_path)}) == (0, f"{tmp_path}/sitecustomize.py {tmp_path}\n")
