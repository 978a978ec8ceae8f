"""A child process: the one line of its output that says why it ended by itself, its environment, its log that does not
grow for ever."""

import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from apollod.adapters.system.processes import ChildProcess, cut_logs

PYDANTIC = """\
(APIServer pid=7) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(APIServer pid=7)   Value error, Model architectures ['GPT9'] are not supported for now. [type=value_error, input_value=1]
(APIServer pid=7)     For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (PYDANTIC, "(APIServer pid=7)   Value error, Model architectures ['GPT9'] are not supported for now."),
        ("Traceback (most recent call last):\nRuntimeError: first\nValueError: second\nbye\n", "ValueError: second"),
        ("usage: engine\nengine: error: unrecognized arguments: --x\n", "engine: error: unrecognized arguments: --x"),
        ("all is well\n", ""),
        (f"OSError: {'x' * 1000}\n", f"OSError: {'x' * 291}"),
    ],
)
def test_the_line_that_says_why(tmp_path: Path, output: str, told: str) -> None:
    (tmp_path / "said").write_text(output)
    (tmp_path / "speaker.py").write_text(
        "import pathlib\nprint(pathlib.Path(__file__).with_name('said').read_text())\n"
    )

    async def main() -> str:
        child = await ChildProcess.spawn("speaker", (), {"PYTHONPATH": str(tmp_path)}, tmp_path / "log")
        assert await child.wait() == 0
        return child.last_error()

    assert anyio.run(main) == told


def test_a_child_is_not_told_what_the_environment_says_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shower.py").write_text("import os\nprint(*sorted(os.environ), *os.environ.values(), sep='\\n')\n")
    monkeypatch.setenv("APOLLOD_JUDGE__API_KEY", "for nobody else")
    monkeypatch.setenv("APOLLOD_DEVICE", "cpu")

    async def main() -> None:
        child = await ChildProcess.spawn("shower", (), {"PYTHONPATH": str(tmp_path)}, tmp_path / "log")
        assert await child.wait() == 0

    anyio.run(main)
    said = (tmp_path / "log").read_text()
    assert "APOLLOD_DEVICE" in said and "APOLLOD_JUDGE__API_KEY" not in said and "for nobody else" not in said


def test_a_log_that_is_too_long_is_cut_while_its_writer_goes_on(tmp_path: Path) -> None:
    log, short, other = tmp_path / "engine.log", tmp_path / "trainer.log", tmp_path / "notes.txt"
    short.write_bytes(b"s" * 10)
    other.write_bytes(b"o" * 1000)
    says = "import sys\nfor line in sys.stdin: print(line * 50, end='', flush=True)"
    with open(log, "ab") as file:
        child = subprocess.Popen([sys.executable, "-S", "-c", says], stdin=subprocess.PIPE, stdout=file, text=True)
    assert child.stdin is not None
    for n in range(3):
        before = log.stat().st_size
        child.stdin.write(f"line {n}\n")
        child.stdin.flush()
        while log.stat().st_size < before + 350:
            pass
        assert cut_logs(tmp_path, 100) == [log]
        assert log.stat().st_size == 0
        older = tmp_path / "engine.log.1"
        assert older.read_text() == f"line {n}\n" * 50 and stat.S_IMODE(older.stat().st_mode) == 0o600
    child.stdin.close()
    assert child.wait() == 0
    assert cut_logs(tmp_path, 100) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "engine.log",
        "engine.log.1",
        "notes.txt",
        "trainer.log",
    ]
