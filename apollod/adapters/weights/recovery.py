"""After a writer of checkpoints died: what it committed is finished, what it did not is dropped.

The work on the files is done by `apollo-checkpoint recover` in a process of its own: it needs numpy and may take as
long as a checkpoint, and a file that kills it kills nothing else.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from apollod.errors import ApolloError, CheckpointError
from apollod.store.entry import read_entry


class _Recovered(msgspec.Struct):
    step: int | None = None
    error: str = ""
    hint: str = ""


def recover(model_dir: Path) -> int | None:
    """Make the weights there whole; the step that they are of, None where nobody recorded one. Blocking.

    Raises ApolloError that says what is intact.
    """
    command = [
        sys.executable,
        "-m",
        "apollod.cli.checkpoints.checkpoint_tool",
        "recover",
        "--model-dir",
        str(model_dir),
        "--json",
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    try:
        found = msgspec.json.decode(done.stdout, type=_Recovered)
    except msgspec.MsgspecError:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ApolloError(
            f"`apollo-checkpoint recover` ended with {done.returncode}: {last}", f"run it: {' '.join(command)}"
        ) from None
    if found.error:
        raise ApolloError(found.error, found.hint)
    return found.step


def observe(model_dir: Path, path: Path) -> str:
    """Fingerprint of the checkpoint `path` if it was committed; otherwise what there is of it is removed, and "" is
    returned.

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
