"""Keeps a second copy of the weights before the first step, so that all learning can always be undone.

Weights are reflinked where the file system can (Btrfs, XFS: no space until one of the two changes), else hard-linked
(the same bytes under a second name: safe from deletion and from being replaced, not from being edited in place), else
copied.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from apollod.adapters.system.files import fsync_dir, fsync_file, make_empty, put_in_place
from apollod.adapters.system.model_dir import files_below

How = Literal["reflink", "link", "copy"]

FICLONE = 0x40049409  # linux/fs.h
CHUNK_BYTES = 64 << 20
SPARE_BYTES = 1 << 30  # stays free for the journal after a copy
WEIGHTS = ".safetensors"
"""other files (config, tokenizer) are always copied: they are small, and users edit them in place"""
_BY_PRICE: tuple[How, ...] = ("reflink", "link", "copy")
PASSING = (errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM)
"""errors of a read that say nothing about the file"""
RECORD = ".apollod-base.json"  # hidden: not part of the model
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf", ".tmp")


class BaseCopy(NamedTuple):
    """The copy of the base weights: the method used, and the bytes of disk that it took at once."""

    how: How
    bytes: int


class _Used(NamedTuple):
    how: How
    bytes: int
    weights: bool


class _File(msgspec.Struct, frozen=True):
    """A file as it was kept. `mtime_ns` also reveals an edit in place of a hard-linked one."""

    bytes: int
    mtime_ns: int


def keep(model_dir: Path, target: Path, how: Literal["auto", "copy"], stop: Callable[[], bool]) -> BaseCopy:
    """Make `target` a complete model directory with the files of `model_dir`, durably. Whole or not at all.

    `stop` is called between chunks of a copy; if it returns true, for lack of space, and for a name that is not UTF-8,
    OSError is raised.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = target.with_name(f"{target.name}.tmp")
    make_empty(temporary)
    try:
        names = [_sayable(name) for name in files_below(model_dir, OTHER_WEIGHTS)]
        used = [_keep_file((model_dir / name).resolve(strict=True), temporary / name, how, stop) for name in names]
        record = {
            str(file.relative_to(temporary)): _seen(file) for file in sorted(temporary.rglob("*")) if file.is_file()
        }
        (temporary / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        fsync_file(temporary / RECORD)
        for directory in [temporary, *(item for item in temporary.rglob("*") if item.is_dir())]:
            fsync_dir(directory)
        put_in_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    weights: list[How] = [kept.how for kept in used if kept.weights]
    return BaseCopy(max(weights, key=_BY_PRICE.index), sum(kept.bytes for kept in used))


def problem(target: Path) -> str:
    """Problem of a kept base; "" if there is none, or if the disk or a limit of open files hides it for now, since a
    loss is recorded for good. Checks names, sizes and times, not the bytes."""
    at = target
    try:
        record = msgspec.json.decode((target / RECORD).read_bytes(), type=dict[str, _File])
        for name, expected in record.items():
            at = target / name
            if _seen(at) != expected:
                return f"{at} was changed"
    except FileNotFoundError:
        return f"{at} is gone"
    except OSError as error:
        return "" if error.errno in PASSING else f"{at} cannot be read: {error}"
    except msgspec.MsgspecError as error:
        return f"{target / RECORD} does not decode: {error}"
    return ""


def _sayable(name: Path) -> Path:
    """Return the name if it is valid UTF-8, else raise OSError."""
    try:
        str(name).encode()
    except UnicodeEncodeError as error:
        raise OSError(f"{str(name)!a} is no file name in UTF-8; rename it") from error
    return name


def _keep_file(source: Path, target: Path, how: Literal["auto", "copy"], stop: Callable[[], bool]) -> _Used:
    target.parent.mkdir(parents=True, exist_ok=True)
    weights = target.suffix == WEIGHTS
    if weights and how == "auto":
        if _reflink(source, target):
            return _Used("reflink", 0, weights)
        try:
            os.link(source, target)
            return _Used("link", 0, weights)
        except OSError:  # another file system, or one without hard links
            pass
    _copy(source, target, stop)
    return _Used("copy", source.stat().st_size, weights)


def _reflink(source: Path, target: Path) -> bool:
    with source.open("rb") as read, target.open("xb") as write:
        try:
            fcntl.ioctl(write.fileno(), FICLONE, read.fileno())
        except OSError:
            target.unlink()
            return False
    fsync_file(target)
    return True


def _copy(source: Path, target: Path, stop: Callable[[], bool]) -> None:
    size, free = source.stat().st_size, shutil.disk_usage(target.parent).free
    if size + SPARE_BYTES > free:
        raise OSError(f"a copy of {source} takes {size} bytes, {target.parent} has {free} free")
    with source.open("rb") as read, target.open("xb") as write:
        while chunk := read.read(CHUNK_BYTES):
            if stop():
                raise OSError("stopped")
            write.write(chunk)
    fsync_file(target)


def _seen(file: Path) -> _File:
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{file} is no file")
    return _File(found.st_size, found.st_mtime_ns)
