"""A child's log does not grow for ever, and what was said last is there."""

import stat
import subprocess
import sys
from pathlib import Path

from apollod.adapters.system import long_logs


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
        assert long_logs.cut(tmp_path, 100) == [log]
        assert log.stat().st_size == 0
        older = tmp_path / "engine.log.1"
        assert older.read_text() == f"line {n}\n" * 50 and stat.S_IMODE(older.stat().st_mode) == 0o600
    child.stdin.close()
    assert child.wait() == 0
    assert long_logs.cut(tmp_path, 100) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "engine.log",
        "engine.log.1",
        "notes.txt",
        "trainer.log",
    ]
