"""Applies a committed redo record to the files; after a crash, restores one complete set of weights.

A sync and a recovery run the same code from the commit point on, so everything that a crash interrupts is simply
repeated.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from apollod.errors import ApolloError, RedoRefused, SyncError
from apollod.store.access import OURS, REDO, TABLE
from apollod.store.block_table import (
    BLOCK,
    BlockTable,
    FileBlocks,
    differing,
    hash_file,
    identity,
    read_table,
    stamped,
    write_table,
)
from apollod.store.disk import Disk, opened
from apollod.store.file_update import runs
from apollod.store.model_files import WeightFile, layout_digest, read_files
from apollod.store.redo import NEW, REDO_TMP, Part, Redo, check_fits, images, read_redo, verify_images


@dataclass(frozen=True)
class Recovered:
    """Result of a recovery. `applied`: a committed sync was finished; `dropped`: removed files of an uncommitted one.

    `generation` and `step` of the weights, None where unknown.
    """

    applied: bool
    dropped: tuple[str, ...]
    generation: int | None
    step: int | None


def recover_files(disk: Disk, directory: Path) -> Recovered:
    """Finish or drop a sync that a crash interrupted; may be repeated and interrupted. The caller holds the lock.

    Raises RedoRefused, SyncError or ModelRefused; nothing was written then, except for SyncError while a redo is
    applied.
    """
    try:
        redo, table = _checked(disk, directory), read_table(disk, directory)
    except RedoRefused as error:
        raise RedoRefused(str(error), error.hint or _intact(disk, directory)) from error
    except OSError as error:
        raise SyncError(f"{directory} cannot be recovered ({error})", "nothing was written; check the disk") from error
    if redo is not None:
        usable = (
            table is not None
            and table.layout == redo.head.layout
            and table.generation in (redo.head.base, redo.head.generation)
        )
        finish(disk, directory, redo, table if usable else None, verified=False)
    dropped = _drop_strays(disk, directory)
    head = redo.head if redo is not None else table
    return Recovered(redo is not None, dropped, head.generation if head else None, head.step if head else None)


def _checked(disk: Disk, directory: Path) -> Redo | None:
    """Return the redo record after a check that everything it needs is there."""
    redo = read_redo(disk, directory)
    if redo is not None:
        check_fits(redo.path, redo.head, layout_digest(read_files(directory, disk)))
        verify_images(disk, redo)
        _verify_new_files(disk, directory, redo)
    return redo


def _drop_strays(disk: Disk, directory: Path) -> tuple[str, ...]:
    """Remove those of our files that are useless without a redo record."""
    present = [f"{OURS}/{name}" for name in disk.names(str(directory / OURS))]
    strays = tuple(name for name in present if name in (REDO_TMP, f"{TABLE}.tmp") or name.startswith(NEW))
    try:
        for name in strays:
            disk.unlink(str(directory / name))
        if strays:
            disk.fsync_dir(str(directory / OURS))
    except OSError as error:
        raise SyncError(
            f"{directory / OURS} cannot be tidied ({error})", "the weights are whole; fix the permissions or the disk"
        ) from error
    return strays


def finish(disk: Disk, directory: Path, redo: Redo, table: BlockTable | None, verified: bool) -> int:
    """Carry out a committed redo record, both phases; return the number of bytes written to the files and the table.

    `table`, `verified` and errors: as in `Finishing`.
    """
    work = Finishing(disk, directory, redo, table, verified)
    return work.put() + work.settle()


class Finishing:
    """Remaining work of a committed redo record: `put`, then `settle`, by the holder of the lock.

    After `put` every process reads the new weights, and no crash undoes them: the record is durable, and a recovery
    would put them there again. `settle` flushes the files and then removes the record; nobody needs to wait for that.
    Both raise SyncError with `committed`; the record then stays, and only a recovery may continue, never a second
    `settle`: after a failed flush the kernel takes the pages for clean, and only the images of the record bring them
    back.

    `table`: the block table from before the record; None to compute it from the files. `verified`: the files were
    compared with it just now, so their stat values are up to date.
    """

    def __init__(self, disk: Disk, directory: Path, redo: Redo, table: BlockTable | None, verified: bool) -> None:
        self._disk, self._directory, self._redo = disk, directory, redo
        self._table, self._verified = table, verified
        self._unflushed: list[int] = []
        """Descriptors that wrote blocks in place, kept open until they are flushed: a descriptor opened later would not
        report every failed write."""

    def put(self) -> int:
        """Write blocks to their places and rename new files; return the number of bytes written."""
        with (
            self._unfinished(),
            self._disk.let_go_later([str(self._directory / name) for name in _replaced(self._redo)]),
        ):
            written = sum(self._put_blocks(part) for part in self._redo.parts if part.file.how == "blocks")
            _put_files(self._disk, self._directory, self._redo)
        return written

    def settle(self) -> int:
        """Flush the files, write the table, then remove the record; return the number of bytes of the table."""
        disk, ours = self._disk, str(self._directory / OURS)
        with self._unfinished(), disk.let_go_later([self._redo.path]):
            for fd in self._unflushed:
                disk.fdatasync(fd)
            self.close()
            if _replaced(self._redo):
                disk.fsync_dir(str(self._directory))
            written = _put_table(disk, self._directory, self._redo, self._table, self._verified)
            disk.unlink(self._redo.path)
            disk.fsync_dir(ours)
        return written

    def close(self) -> None:
        """Close the files, settled or not."""
        while self._unflushed:
            self._disk.close(self._unflushed.pop())

    @contextmanager
    def _unfinished(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise SyncError(
                f"the sync of {self._directory} is committed and not finished ({error})",
                f"keep {self._redo.path}, mend the disk, then run `apollo-checkpoint recover --model-dir "
                f"{self._directory}`",
                committed=True,
            ) from error

    def _put_blocks(self, part: Part) -> int:
        """Write the images of one file to their places, into the page cache."""
        written = 0
        target = self._disk.open(str(self._directory / part.file.name), write=True)
        self._unflushed.append(target)
        with opened(self._disk, self._redo.path) as source:
            for blocks, data in images(self._disk, source, part):
                flat, numbers = memoryview(data.reshape(-1).data), blocks.tolist()
                for start, stop in runs(blocks):
                    offset = numbers[start] * BLOCK
                    piece = flat[start * BLOCK : stop * BLOCK][: part.file.size - offset]
                    self._disk.write(target, offset, piece)
                    written += len(piece)
        return written


def _put_files(disk: Disk, directory: Path, redo: Redo) -> None:
    """Rename new files into place; a missing one was renamed before a crash."""
    for name in _replaced(redo):
        if disk.stat(str(directory / f"{NEW}{name}")) is not None:
            disk.rename(str(directory / f"{NEW}{name}"), str(directory / name))


def _replaced(redo: Redo) -> list[str]:
    return [part.file.name for part in redo.parts if part.file.how in ("reflink", "rewrite")]


def _put_table(disk: Disk, directory: Path, redo: Redo, table: BlockTable | None, verified: bool) -> int:
    """Write the table durably, before the record is removed: with a table of older weights a sync would skip blocks
    that it has to write, and without a table the step of the weights would be unknown."""
    if table is None:
        table = BlockTable(redo.head.layout, 0, 0, _hashed(disk, directory, read_files(directory, disk)))
    written = write_table(disk, directory, _renewed(disk, directory, redo, table, verified))
    disk.fsync_dir(str(directory / OURS))
    return written


def _renewed(disk: Disk, directory: Path, redo: Redo, table: BlockTable, verified: bool) -> BlockTable:
    """The table with the new hashes. After a crash without stat values, so that the next sync reads the bytes."""
    files = dict(table.files)
    for part in redo.parts:
        if part.file.how == "unchanged":
            continue
        known = files[part.file.name]
        hashes = known.hashes.copy()
        hashes[part.blocks] = part.hashes
        files[part.file.name] = FileBlocks(known.name, known.size, (0, 0, 0), hashes)
    renewed = replace(table, generation=redo.head.generation, step=redo.head.step, files=files)
    return stamped(disk, directory, renewed) if verified else renewed


def _verify_new_files(disk: Disk, directory: Path, redo: Redo) -> None:
    """Raise RedoRefused unless every new file of the record is complete, beside its place or in it."""
    for part in redo.parts:
        if part.file.how not in ("reflink", "rewrite"):
            continue
        new, place = str(directory / f"{NEW}{part.file.name}"), str(directory / part.file.name)
        path = new if disk.stat(new) is not None else place
        info = disk.stat(path)
        if (
            info is None
            or info.size != part.file.size
            or not np.array_equal(hash_file(disk, path, info.size), part.hashes)
        ):
            raise RedoRefused(f"{path} is not what the redo record {redo.path} committed", "")


def _intact(disk: Disk, directory: Path) -> str:
    """Hint for when the redo record cannot be used: which files are intact."""
    try:
        table = read_table(disk, directory)
        files = read_files(directory, disk)
        if table is None or table.layout != layout_digest(files):
            return "nothing was written; whether the weights are whole is not known: restore them from a checkpoint"
        wrong = differing(table, _hashed(disk, directory, files))
    except (OSError, ApolloError) as error:
        return f"nothing was written; what is intact cannot be told ({error})"
    whole = [file.name for file in files if file.name not in wrong]
    state = f"weights of sync {table.generation} (step {table.step})"
    if not wrong:
        return f"nothing was written; all files hold the whole {state}: remove {directory / REDO} to go on from them"
    names = ", ".join(f"{name} ({count} blocks)" for name, count in wrong.items())
    return (
        f"nothing was written; of the {state} intact: {', '.join(whole) or 'no file'}; not: {names}; restore a "
        "checkpoint"
    )


def _hashed(disk: Disk, directory: Path, files: Sequence[WeightFile]) -> dict[str, FileBlocks]:
    found = {}
    for file in files:
        path = str(directory / file.name)
        info = disk.stat(path)
        if info is not None:
            found[file.name] = FileBlocks(file.name, info.size, identity(info), hash_file(disk, path, info.size))
    return found
