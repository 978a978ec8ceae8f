"""Access to a model directory: the names of apollod's own files in it, the refusal to write where other programs may
share the weights, and the lock for one writer or any number of loaders, an flock on
`<model_dir>/.apollod/weights.lock`. No numpy here: light processes use it, too.

A tensor that another process has mapped from a file changes under it when the file is written in place, so a loader
takes the lock shared and a sync takes it exclusively. The system releases it when its holder ends, even by a crash.

Once a sync has put the new weights into the files, it may hold the lock shared while it settles. It then also locks its
redo record: that distinguishes the record of a running sync from one that a crash left behind.
"""

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apollod.errors import ModelRefused, SyncError, WeightsLocked
from apollod.explain import reason
from apollod.permission import denied

OURS = ".apollod"
"""Hidden directory that other tools ignore."""

REDO = f"{OURS}/redo"
"""Remaining work of a committed sync."""

DAEMON = f"{OURS}/daemon"
"""One line: the path of the control socket of the daemon that serves this directory."""

LOCK = f"{OURS}/weights.lock"

TABLE = f"{OURS}/blocks.bin"
"""Hashes of all blocks at the last sync: only a directory that was written by one has it."""


# --- the right to write -----------------------------------------------------------------------------------------------


def check_writable(model_dir: Path) -> None:
    """Raise ModelRefused, with the command that makes a private copy, unless the weights there are ours to change.

    A shared hub cache holds the same files for every program of the user, as links into `blobs`.
    """
    if not model_dir.is_dir():
        raise ModelRefused(f"{model_dir} is no directory", "give a local Hugging Face directory")
    if reason := _shared(model_dir):
        raise ModelRefused(f"{model_dir} {reason}: other programs load the same files", _copy(model_dir))
    for item in sorted(model_dir.glob("*.safetensors")):
        if item.is_symlink():
            raise ModelRefused(f"{item} is a link to {os.readlink(item)}, which others may use", _copy(model_dir))
        if not os.access(item, os.R_OK | os.W_OK):
            raise ModelRefused(f"{item} is not ours to write", _copy(model_dir))
    if not os.access(model_dir, os.R_OK | os.W_OK | os.X_OK):
        raise ModelRefused(f"{model_dir} is not ours to write", _copy(model_dir))


def _shared(model_dir: Path) -> str:
    real = model_dir.resolve()
    for path in {model_dir.absolute(), real}:
        for cache in _caches():
            if path.is_relative_to(cache):
                return f"lies in the Hugging Face cache {cache}"
        names = path.parts
        for at, name in enumerate(names[:-1]):
            if name.startswith("models--") and names[at + 1] in ("snapshots", "blobs"):
                return f"lies in the Hugging Face cache {Path(*names[:at])}"
    return ""


def _caches() -> list[Path]:
    """Directories where huggingface_hub keeps its cache: HF_HUB_CACHE, else HF_HOME/hub, else
    ~/.cache/huggingface/hub."""
    home = Path(
        os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    ).expanduser()
    named = [os.environ.get(name) for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")]
    caches = [home / "hub", *(Path(path).expanduser() for path in named if path)]
    return [form for cache in caches for form in (cache.absolute(), cache.resolve())]


def _copy(model_dir: Path) -> str:
    target = Path("~/models").expanduser() / _model_name(model_dir)
    return (
        f"make a private copy and use that: `mkdir -p {shlex.quote(str(target))} && cp -a --reflink=auto -L "
        f"{shlex.quote(str(model_dir))}/. {shlex.quote(str(target))}/`"
    )


def _model_name(model_dir: Path) -> str:
    """Name of the model: for `models--org--name/snapshots/<hash>`, `name`."""
    for part in reversed(model_dir.absolute().parts):
        if part.startswith("models--"):
            return part.rpartition("--")[2]
    return model_dir.absolute().name or "model"


# --- the lock ---------------------------------------------------------------------------------------------------------


class WeightsLock:
    """Held inside a `with`. Raises WeightsLocked that names the holders, NotPermitted that names the owner, or
    SyncError where the lock file cannot be made."""

    def __init__(self, model_dir: Path, shared: bool = False) -> None:
        self._path = model_dir / LOCK
        self._kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX

    def __enter__(self) -> "WeightsLock":
        try:
            self._path.parent.mkdir(exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except PermissionError as error:
            raise denied(error.filename) from error
        except OSError as error:
            raise SyncError(
                f"{self._path} cannot be opened ({reason(error)})", "check the owner, mode and disk of the directory"
            ) from error
        try:
            fcntl.flock(self._fd, self._kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise WeightsLocked(
                f"the weights of {self._path.parent.parent} are in use by {holders(self._path)}",
                "a sync waits for nobody: try again when they have loaded or written them",
            ) from None
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)

    @contextmanager
    def settling(self) -> Iterator[bool]:
        """Admit loaders from here on. Yields False where this sync has nothing to settle: no record, or another writer
        came between.

        The system releases a lock before it converts it. A writer that comes between recovers, and the record is then
        not ours.
        """
        record = self._path.parent.parent / REDO
        try:
            fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            yield False
            return
        except OSError as error:
            raise SyncError(
                f"{record} cannot be opened ({reason(error)})", "the sync is committed; recover it", committed=True
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                ours = record.stat().st_ino == os.fstat(fd).st_ino
            except (BlockingIOError, FileNotFoundError):
                ours = False
            yield ours
        finally:
            os.close(fd)


def interrupted(model_dir: Path) -> bool:
    """Return True if a sync of these weights was interrupted after its commit; False while its process only has to
    settle it.

    Raises NotPermitted where the caller may not read the record.
    """
    record = model_dir / REDO
    try:
        fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError as error:
        raise denied(record) from error
    except OSError:  # not a redo record that a sync wrote: a recovery reports the problem
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def holders(path: Path) -> str:
    """Name the processes that hold an flock on the file, from /proc/locks."""
    inode = os.stat(path).st_ino
    found = []
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "->" not in fields and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            found.append(f"pid {fields[4]}{_command(fields[4])} ({'writes' if fields[3] == 'WRITE' else 'reads'})")
    return ", ".join(found) or "another process"


def _command(pid: str) -> str:
    try:
        return f" {Path(f'/proc/{pid}/comm').read_text().strip()}"
    except OSError:
        return ""
