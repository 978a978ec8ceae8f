"""The files of updates by outside trainers, `<state>/updates/DIGEST`: received under a temporary name, checked against
the model, and named by the BLAKE2b-256 of their bytes once they are durable."""

import io
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import BinaryIO, NamedTuple

from apollod.adapters.memmap_directory import opened, read_meta
from apollod.adapters.system.files import fsync_dir, fsync_file, is_below, open_without_links
from apollod.errors import ModelRefused, RecordRefused
from apollod.explain import reason
from apollod.model.checkpoint_names import check_tensor, known_names
from apollod.store.model_files import read_files, read_header, weight_names
from apollod.wire.manifest import safetensors_header

BLOCK = 8 << 20
KEPT = """SELECT file.value, events.body ->> '$.step' FROM events, json_each(events.body, '$.files') AS file
    WHERE kind = 'update.committed' AND body ->> '$.step' <> {but} AND body ->> '$.step' NOT IN
        (SELECT body ->> '$.step' FROM events WHERE kind = 'update.files-removed')"""
"""files of committed updates and their steps, in a journal, without those of the step `but`"""
_NAME = re.compile(r"[0-9a-f]{64}")
MEMMAP = "memmap"
FORMATS = ("auto", "safetensors", MEMMAP)
"""values of `load_format` that are read"""


class Received(NamedTuple):
    """A file of an update. `targets`: names of its tensors in the model directory."""

    file: str
    targets: frozenset[str]
    tensors: int
    bytes: int
    seconds: float

    @property
    def names(self) -> str:
        """Digest of the names, for the journal."""
        return names_digest(self.targets)


def names_digest(targets: frozenset[str]) -> str:
    """BLAKE2b-128 over names, in alphabetical order: 32 hex digits."""
    return blake2b("\0".join(sorted(targets)).encode(), digest_size=16).hexdigest()


class Manifest:
    """Tensors that a model directory stores, to check what a sender announces."""

    def __init__(self, model_dir: Path) -> None:
        """Read the headers. Blocking. Raises ModelRefused."""
        stored = [tensor for file in read_files(model_dir) for tensor in file.tensors]
        self._shapes = {tensor.name: tensor.shape for tensor in stored}
        self._names = known_names(self._shapes)

    def checked(self, tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> frozenset[str]:
        """Names in the model directory of (name, dtype, shape). Raises RecordRefused."""
        if len({name for name, _, _ in tensors}) != len(tensors):
            raise RecordRefused("a tensor comes twice", "send each tensor of an update once")
        if not tensors:
            raise RecordRefused("it has no tensors", "send at least one")
        return frozenset(check_tensor(*one, self._names, self._shapes) for one in tensors)

    def lacking(self, targets: frozenset[str]) -> list[str]:
        """Names that are not among these, in order."""
        return sorted(self._shapes.keys() - targets)


def temporary(directory: Path) -> Path:
    """A name for a file that is being received. Makes the directory, for this user alone. Blocking. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory / f".{os.getpid()}-{time.monotonic_ns()}.part"


def put(part: Path, digest: str) -> None:
    """Give a received file its name, durably. Blocking. Raises OSError."""
    fsync_file(part)
    part.replace(part.with_name(digest))
    fsync_dir(part.parent)


def take_directory(
    source: str, load_format: str, allowed: Sequence[str], directory: Path, manifest: Manifest
) -> Iterator[Received]:
    """Copy the safetensors files of a directory, one after another, each checked first; or, with the format `memmap`,
    the tensors of a memory-mapped tensordict. Blocking.

    Raises RecordRefused for a directory that is not below one of `allowed`, other formats, tensors that the model does
    not have, and files that change meanwhile.
    """
    if load_format not in FORMATS:
        raise RecordRefused(f"load_format is {load_format!r}", f"send {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    place = _allowed(source, allowed)
    try:
        if load_format == MEMMAP:
            yield _gathered(place, directory, manifest)
            return
        for name in weight_names(place):
            yield _copied(place, name, directory, manifest)
    except ModelRefused as error:
        raise RecordRefused(str(error), error.hint) from error
    except OSError as error:
        raise RecordRefused(f"{source} cannot be read: {reason(error)}", "check its owner and mode") from error


def _allowed(source: str, allowed: Sequence[str]) -> Path:
    if not os.path.isabs(source) or "\0" in source:
        raise RecordRefused(f"{source[:200]!r} is not an absolute path", "send the path of a directory")
    place = Path(os.path.realpath(source))
    if not is_below(place, allowed):
        raise RecordRefused(
            f"{source} is not below a directory from which weights may be read",
            "add one to [control] directories" if allowed else "name one in [control] directories",
        )
    return place


def _copied(place: Path, name: str, directory: Path, manifest: Manifest) -> Received:
    began = time.monotonic()
    with os.fdopen(open_without_links(place / name), "rb", buffering=0) as file:
        before = _mark(file)
        tensors = read_header(place, name).tensors
        targets = manifest.checked([(one.name, one.dtype, one.shape) for one in tensors])
        with _part(directory) as part:
            part.copy(file)
            if before != _mark(file) or before.bytes != part.bytes:
                raise _being_written(place / name)
            return part.received(targets, [one.bytes for one in tensors], began)


def _gathered(place: Path, directory: Path, manifest: Manifest) -> Received:
    """One file of all tensors of a memory-mapped tensordict. Its writer leaves no mark of an end, and writes over the
    bytes that are there: so each file is read twice, and the second time, after all were read once, it has to be what
    it was."""
    began, tensors = time.monotonic(), read_meta(place)
    announced = [(one.name, one.dtype, one.shape) for one in tensors]
    targets = manifest.checked(announced)
    filled = [one for one in tensors if one.bytes]  # an empty one has no file
    with ExitStack() as open_, _part(directory) as part:
        part.write(safetensors_header(announced))
        files = [open_.enter_context(os.fdopen(opened(one), "rb", buffering=0)) for one in filled]
        marks, digests = [_mark(file) for file in files], [blake2b(digest_size=32) for _ in files]
        for file, digest in zip(files, digests, strict=True):
            part.copy(file, digest)
        for one, file, mark, digest in zip(filled, files, marks, digests, strict=True):
            file.seek(0)
            again = file_digest(file, partial(blake2b, digest_size=32))
            if (again.digest(), _mark(file)) != (digest.digest(), mark):
                raise _being_written(one.file)
        return part.received(targets, [one.bytes for one in tensors], began)


class _Mark(NamedTuple):
    """Time of the last change and size of a file: both are compared before and after it is read."""

    changed_ns: int
    bytes: int


def _mark(file: io.FileIO) -> _Mark:
    info = os.fstat(file.fileno())
    return _Mark(info.st_mtime_ns, info.st_size)


def _being_written(file: Path) -> RecordRefused:
    return RecordRefused(f"{file} is being written", "send it once its writer has ended")


class _Part:
    """A file of an update that is being written."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._digest = blake2b(digest_size=32)
        self.bytes = 0

    def write(self, data: bytes) -> None:
        """Append bytes. Raises OSError."""
        self._digest.update(data)
        self._file.write(data)
        self.bytes += len(data)

    def copy(self, source: io.FileIO, digest: blake2b | None = None) -> None:
        """Append the bytes of another file, with which `digest` is updated, too. Raises OSError."""
        while block := source.read(BLOCK):
            if digest is not None:
                digest.update(block)
            self.write(block)

    def received(self, targets: frozenset[str], sizes: Sequence[int], began: float) -> Received:
        """Give it its name, durably. `sizes`: bytes of its tensors; `began`: by the monotonic clock. Raises OSError."""
        self._file.flush()
        put(self._path, digest := self._digest.hexdigest())
        return Received(digest, targets, len(sizes), sum(sizes), time.monotonic() - began)


@contextmanager
def _part(directory: Path) -> Iterator[_Part]:
    path = temporary(directory)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            yield _Part(path, file)
    finally:
        path.unlink(missing_ok=True)


def problem(directory: Path, name: str) -> str:
    """The reason why a file cannot be used: its path and what is wrong with it; empty: nothing. Blocking."""
    path = directory / name
    try:
        with path.open("rb") as file:
            found = file_digest(file, partial(blake2b, digest_size=32)).hexdigest()
    except OSError as error:
        return f"{path}: {reason(error)}"
    return "" if found == name else f"{path} was changed, it is {found} now"


def remove(directory: Path, files: Sequence[str]) -> None:
    """Remove these files; those that are gone count as removed. Blocking. Raises OSError."""
    for name in files:
        (directory / name).unlink(missing_ok=True)
    if directory.exists():
        fsync_dir(directory)


def remove_others(directory: Path, kept: frozenset[str]) -> None:
    """Remove what a daemon that was killed left: files under temporary names, and those that no event names. Blocking;
    what cannot be removed stays."""
    _remove_where(directory, lambda name: not (_NAME.fullmatch(name) and name in kept))


def remove_half_received(directory: Path) -> None:
    """Remove files under temporary names only. Blocking; what cannot be removed stays."""
    _remove_where(directory, lambda name: not _NAME.fullmatch(name))


def _remove_where(directory: Path, unwanted: Callable[[str], bool]) -> None:
    with suppress(OSError):
        for entry in os.scandir(directory):
            if unwanted(entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
