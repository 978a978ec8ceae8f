"""Ways of a version of the weights to engines elsewhere. `stage` runs once a version, while requests are served;
`deliver` once for each receiver, and only that may hold its generation.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

import anyio

from apollod.adapters.system.files import fsync_dir, fsync_file, put_in_place
from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.weights import Weights
from apollod.errors import SendFailed

COPIED = (".json", ".txt", ".model", ".jinja")
"""endings of the files of a model directory that an engine reads besides the weights"""
CURRENT = "current"
SLOTS = ("a", "b")
WRITERS = 8
RECORD = "apollod.json"
"""says that a directory is ours: version, fingerprint and, of a slot, the BLAKE2b-256 of each file"""


class Staged(NamedTuple):
    """A version that is ready to be delivered. `name`: of what lies in the directory of versions; empty: nothing.
    `carried`, `left_out`: see `core.facts.publishing.Attempt`."""

    version: int
    fingerprint: str
    bytes: int
    name: str = ""
    carried: float = 1.0
    left_out: int = 0


class Bridge(Protocol):
    """A way of weights."""

    def stage(self, weights: Weights, version: int) -> Staged:
        """Make a version ready. Blocks; the trainer does not write meanwhile. Raises SendFailed, OSError."""

    async def deliver(self, staged: Staged, receiver: Receiver, loaded: Callable[[], None]) -> float:
        """Bring it to a receiver; returns the seconds for which its generation was held. `loaded` is called when the
        receiver computes with it, before its generation goes on. Raises SendFailed."""

    def close(self) -> None:
        """Give back what would outlive the process. Blocks."""
        return


class Disk(Bridge):
    """A model directory for each version, `v12`, which receivers load. The last two are kept: a receiver may still
    read one."""

    kept = 2

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        for left in self._versions():
            shutil.rmtree(left, ignore_errors=True)

    def stage(self, weights: Weights, version: int) -> Staged:
        """Source: the safetensors format; headers are those of the model's own files."""
        target = self._directory / f"v{version}"
        temporary = self._directory / f"v{version}.new"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        _write(temporary / RECORD, {"version": version})  # first: only directories that have it are removed
        for file in sorted(weights.directory.iterdir()):
            if file.is_file() and file.suffix in COPIED and not file.name.startswith((".", "apollod")):
                shutil.copy2(file, temporary / file.name)
        with ThreadPoolExecutor(1) as beside:
            fingerprint = beside.submit(weights.fingerprint)  # numpy gives way to the writing
            for weight_file in weights.files:
                with (temporary / weight_file.name).open("wb") as out:
                    out.write(weight_file.header)
                    for tensor in weight_file.tensors:
                        for piece in weights.pieces_of(tensor.name):
                            out.write(piece)
                fsync_file(temporary / weight_file.name)
            _write(temporary / RECORD, {"version": version, "fingerprint": fingerprint.result()})
            fsync_dir(temporary)
        put_in_place(temporary, target)
        shutil.rmtree(temporary, ignore_errors=True)  # what was there before, if a rollback gives a number again
        newest = sorted(self._versions(), key=lambda path: path.stat().st_mtime_ns)
        for old in newest[: -self.kept]:
            shutil.rmtree(old, ignore_errors=True)
        return Staged(version, fingerprint.result(), weights.bytes, target.name)

    async def deliver(self, staged: Staged, receiver: Receiver, loaded: Callable[[], None]) -> float:
        """The receiver loads the directory."""
        return await receiver.load(self._directory, staged.name, staged.version, loaded)

    def _versions(self) -> list[Path]:
        return [path for path in self._directory.glob("v*") if (path / RECORD).is_file()]


class Restart(Disk):
    """The same directories, for engines that load weights only when they start: a command restarts them."""

    def __init__(self, directory: Path, command: tuple[str, ...], timeout_s: float) -> None:
        super().__init__(directory)
        self._command, self._timeout_s = command, timeout_s

    async def deliver(self, staged: Staged, receiver: Receiver, loaded: Callable[[], None]) -> float:
        """Restart the receiver."""
        began = anyio.current_time()
        await restart(self._command, receiver.place(self._directory, staged.name), receiver, self._timeout_s)
        loaded()
        return anyio.current_time() - began


async def restart(command: tuple[str, ...], place: str, receiver: Receiver, timeout_s: float) -> None:
    """Run the command that restarts a receiver with what lies at `place`, and wait until it answers. Raises
    SendFailed."""
    environment = {**os.environ, "APOLLOD_WEIGHTS": place, "APOLLOD_RECEIVER": receiver.url}
    try:
        with anyio.fail_after(timeout_s):
            ended = await anyio.run_process(command, env=environment, check=False, stderr=subprocess.STDOUT)
            if ended.returncode:
                said = ended.stdout.decode(errors="replace").strip()[-300:]
                raise SendFailed(f"{command[0]} ended with {ended.returncode}: {said}", "see [weights] command")
            await receiver.up()
    except TimeoutError:
        raise SendFailed(
            f"{receiver.url} did not answer {timeout_s:g} s after its restart", "raise [weights] timeout_s"
        ) from None
    except OSError as error:
        raise SendFailed(f"{command[0]} cannot be run: {error}", "see [weights] command") from error


class Memmap(Bridge):
    """Two slots, `a` and `b`, of which the link `current` names the last whole one. A slot has a file of raw bytes for
    each tensor and `meta.json`, in torchrl's layout for a state_dict (tensordict, memory-mapped), and `apollod.json`.

    A reader that follows `current` once, and finds the digests of `apollod.json`, has a whole version: a slot is
    written again only after the other one became current. Source: tensordict/_memmap.py.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def stage(self, weights: Weights, version: int) -> Staged:
        """Write the slot that is not current, and make it current by renaming a link."""
        link = self._directory / CURRENT
        used = os.readlink(link) if link.is_symlink() else ""
        slot = self._directory / next(name for name in SLOTS if name != used)
        slot.mkdir(exist_ok=True)
        (slot / RECORD).unlink(missing_ok=True)
        meta: dict[str, object] = {
            name: {"device": "cpu", "shape": list(one.shape), "dtype": f"torch.{one.dtype}", "is_nested": False}
            for name, one in weights.tensors.items()
        }
        with ThreadPoolExecutor(WRITERS) as beside:  # hashing, copying and the disk's own work give way to each other
            fingerprint = beside.submit(weights.fingerprint)
            files = [slot / f"{name}.memmap" for name in weights.tensors]
            written = beside.map(lambda file, name: _written(file, weights.pieces_of(name)), files, weights.tensors)
            digests = {file.name: digest for file, digest in zip(files, written, strict=True)}
        meta |= {"shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
        _write(slot / "meta.json", meta)
        _write(slot / RECORD, {"version": version, "fingerprint": fingerprint.result(), "files": digests})
        fsync_dir(slot)
        flipped = self._directory / f"{CURRENT}.new"
        flipped.unlink(missing_ok=True)
        flipped.symlink_to(slot.name)
        flipped.rename(link)
        fsync_dir(self._directory)
        return Staged(version, fingerprint.result(), weights.bytes, CURRENT)

    async def deliver(self, staged: Staged, receiver: Receiver, loaded: Callable[[], None]) -> float:
        """SGLang's dialect is told; others look by themselves."""
        if receiver.terms.dialect == "sglang":
            return await receiver.load(self._directory, staged.name, staged.version, loaded, load_format="memmap")
        loaded()
        return 0.0


def _written(path: Path, pieces: Iterator[memoryview]) -> str:
    """Write a file durably; returns its BLAKE2b-256. Over the bytes that are there: their place on the disk is kept."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb", buffering=0) as out:
        digest = hashlib.blake2b(digest_size=32)
        for piece in pieces:
            left = piece
            while left:
                left = left[out.write(left) :]
            digest.update(piece)
        out.truncate()
        os.fsync(descriptor)
    return digest.hexdigest()


def _write(path: Path, value: object) -> None:
    path.write_bytes(json.dumps(value).encode())
    fsync_file(path)
