"""After a writer of checkpoints died: finishes a committed checkpoint, drops an uncommitted one.

`apollo-checkpoint recover` does the work on the files in a process of its own: it needs numpy and may take as long as a
checkpoint, and a file that makes it crash does not crash the daemon.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from apollod.adapters.system import service
from apollod.errors import ApolloError, CheckpointError
from apollod.store.entry import read_entry

WATCH_S = 5.0
"""seconds between two checks of a process that is waited for"""


class _Recovered(msgspec.Struct):
    step: int | None = None
    error: str = ""
    hint: str = ""


def recover(model_dir: Path) -> int | None:
    """Make the weights there whole; return their step, None if it was not recorded. Blocking.

    Raises ApolloError that says which weights are intact.
    """
    command = [sys.executable, "-m", "apollod.cli.checkpoint_tool", "recover", "--model-dir", str(model_dir), "--json"]
    code, out, complaint = run_watched(command)
    try:
        found = msgspec.json.decode(out, type=_Recovered)
    except msgspec.MsgspecError:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise ApolloError(
            f"`apollo-checkpoint recover` ended with {code}: {last}", f"run it: {' '.join(command)}"
        ) from None
    if found.error:
        raise ApolloError(found.error, found.hint)
    return found.step


def run_watched(command: Sequence[str], every_s: float = WATCH_S) -> tuple[int, bytes, bytes]:
    """Return exit code, stdout and stderr of a command that the event loop waits for. The service manager's watchdog is
    told that all is well while the command reads or writes: 54 GB take minutes. Blocking."""
    seen = ""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while True:
            try:
                out, complaint = process.communicate(timeout=every_s)
            except subprocess.TimeoutExpired:
                if (now := _bytes_moved(process.pid)) != seen:
                    service.notify("WATCHDOG=1")
                seen = now
            else:
                return process.returncode, out, complaint


def _bytes_moved(pid: int) -> str:
    """Return the I/O counters of a process as text (proc(5), /proc/PID/io); empty where they cannot be read."""
    try:
        return Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return ""


def observe(model_dir: Path, path: Path) -> str:
    """Return the fingerprint of the checkpoint `path` if it was committed; otherwise remove its remains and return "".

    Blocking. Raises ApolloError where the model directory cannot be made whole.
    """
    step = recover(model_dir)
    try:
        entry = read_entry(path)
    except CheckpointError:
        entry = None
    if entry is not None and entry.step == step:
        return entry.fingerprint
    shutil.rmtree(path, ignore_errors=True)
    return ""
