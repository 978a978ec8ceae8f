"""Bring the weight files of a model directory up to date, so that any crash leaves the old weights or the new ones,
whole.

    prepare   changed blocks into redo.tmp, or whole new files beside; nothing that anybody loads is touched
    commit    all of that fsynced, redo.tmp renamed to redo, its directory fsynced: one commit point for all shards
    put       blocks in place, new files renamed: from here on all read the new weights, and no crash takes them back
    settle    all of that and the block table made durable, then the record removed; nobody needs to wait for it

Live tensors come from the trainer as pieces, another directory's through `pieces.directory_pieces`.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from apollod.errors import SyncError
from apollod.store.access import OURS, REDO, WeightsLock, check_writable
from apollod.store.apply import Finishing, Recovered, recover_files
from apollod.store.block_table import BlockTable, block_count, current_table, stamped, write_table
from apollod.store.disk import REAL, Disk
from apollod.store.file_update import FileUpdate, Target, discard
from apollod.store.model_files import WeightFile, read_files
from apollod.store.pieces import Piece, Windows
from apollod.store.redo import NEW, REDO_TMP, How, Part, Redo, RedoHead, RedoWriter


@dataclass(frozen=True)
class SyncedFile:
    """Result of syncing one file."""

    name: str
    how: How
    changed_blocks: int
    blocks: int


@dataclass(frozen=True)
class Synced:
    """A committed sync. `bytes_written`: to the redo record and the files, and, once it is settled, to the block
    table."""

    generation: int
    step: int
    changed_blocks: int
    blocks: int
    bytes_written: int
    files: tuple[SyncedFile, ...]


@dataclass(frozen=True)
class Unsettled:
    """A sync whose weights are committed and in the files. The holder of the lock must settle it before another write
    there.

    If that never happens, the next recovery does it.
    """

    synced: Synced
    finishing: Finishing | None
    """None if nothing has changed: there is no record."""

    def settle(self) -> Synced:
        """Flush the files and remove the redo record. Raises SyncError with `committed`; only a recovery may continue
        then."""
        if self.finishing is None:
            return self.synced
        return replace(self.synced, bytes_written=self.synced.bytes_written + self.finishing.settle())

    def abandon(self) -> None:
        """Leave the rest to the next recovery."""
        if self.finishing is not None:
            self.finishing.close()


def sync(model_dir: Path, pieces: Iterable[Piece], step: int = 0, accept_edits: bool = False) -> Synced:
    """Make the files of `model_dir` hold the data of `pieces`: that of every file, sorted by name, in order.

    `step`: number of the weights, kept beside them. Recovers first from an earlier crash. Raises ApolloError that names
    the intact files; unless it is a SyncError with `committed`, the files are as they were.
    """
    check_writable(model_dir)
    with WeightsLock(model_dir):
        recover_files(REAL, model_dir)
        return write_weights(REAL, model_dir, pieces, step, accept_edits)


def recover(model_dir: Path) -> Recovered:
    """Finish or drop a sync that a crash interrupted in `model_dir`. Idempotent. Raises as `recover_files`, and
    WeightsLocked."""
    check_writable(model_dir)
    with WeightsLock(model_dir):
        return recover_files(REAL, model_dir)


def write_weights(
    disk: Disk, directory: Path, pieces: Iterable[Piece], step: int = 0, accept_edits: bool = False
) -> Synced:
    """`sync` on a given disk, by the holder of the lock, after any recovery."""
    return put_weights(disk, directory, pieces, step, accept_edits).settle()


def put_weights(
    disk: Disk,
    directory: Path,
    pieces: Iterable[Piece],
    step: int = 0,
    accept_edits: bool = False,
    known: BlockTable | None = None,
) -> Unsettled:
    """`write_weights` without the settling: no crash undoes the new weights any more, and every process reads them.

    `known`: hashes of the files from an earlier call, computed by the holder of the lock."""
    files = read_files(directory, disk)
    try:
        table = current_table(disk, directory, files, accept_edits, known)
        disk.make_dir(str(directory / OURS))
        if table.generation == 0:  # else an earlier sync has flushed the directory
            disk.fsync_dir(str(directory))
        return _write(disk, directory, files, table, pieces, step)
    except OSError as error:
        raise SyncError(f"the weights cannot be synced to {directory} ({error})", _UNTOUCHED) from error


_UNTOUCHED = "make room or mend the disk; the files hold the weights they held before"


def _write(
    disk: Disk, directory: Path, files: tuple[WeightFile, ...], table: BlockTable, pieces: Iterable[Piece], step: int
) -> Unsettled:
    writer = RedoWriter(disk, directory)
    updates: list[FileUpdate] = []
    try:
        parts = _prepare(Target(disk, directory, writer), files, table, pieces, updates)
        if not any(update.changed for update in updates):
            return Unsettled(_unchanged(disk, directory, replace(table, step=step), parts), None)
        head = RedoHead(1, table.layout, table.generation, table.generation + 1, step, [part.file for part in parts])
        written = writer.close(head, parts) + sum(update.written for update in updates)
        if any(update.written for update in updates):
            disk.fsync_dir(str(directory / OURS))  # the names of new files, before a record refers to them
    except BaseException:
        _abandon(disk, directory, writer, updates, files)
        raise
    _commit(disk, directory)
    finishing = Finishing(disk, directory, Redo(str(directory / REDO), head, parts), table, verified=True)
    written += finishing.put()
    return Unsettled(_synced(head.generation, step, updates, parts, table, written), finishing)


def _prepare(
    target: Target, files: tuple[WeightFile, ...], table: BlockTable, pieces: Iterable[Piece], updates: list[FileUpdate]
) -> list[Part]:
    """Return every file's part; `updates` is filled on the way, so that the caller can close them."""
    windows, parts = Windows(pieces), []
    for file in files:
        update = FileUpdate(target, table.files[file.name])
        updates.append(update)
        for first, data in windows.of(file):
            update.take(first, data)
        parts.append(update.finish())
    windows.end()
    return parts


def _commit(disk: Disk, directory: Path) -> None:
    try:
        disk.rename(str(directory / REDO_TMP), str(directory / REDO))
        disk.fsync_dir(str(directory / OURS))
    except OSError as error:
        raise SyncError(
            f"whether the sync of {directory} is committed is not known ({error})",
            f"mend the disk, then run `apollo-checkpoint recover --model-dir {directory}`: it brings the old "
            "weights or the new ones",
            committed=True,
        ) from error


def _unchanged(disk: Disk, directory: Path, table: BlockTable, parts: list[Part]) -> Synced:
    """Nothing differs: renew only the table, with its step and the stat values of the files."""
    written = write_table(disk, directory, stamped(disk, directory, table))
    disk.fsync_dir(str(directory / OURS))
    return _synced(table.generation, table.step, [], parts, table, written)


def _synced(
    generation: int, step: int, updates: list[FileUpdate], parts: list[Part], table: BlockTable, written: int
) -> Synced:
    changed = [update.changed for update in updates] or [0] * len(parts)
    files = tuple(
        SyncedFile(part.file.name, part.file.how, count, block_count(table.files[part.file.name].size))
        for part, count in zip(parts, changed, strict=True)
    )
    return Synced(generation, step, sum(changed), sum(file.blocks for file in files), written, files)


def _abandon(
    disk: Disk, directory: Path, writer: RedoWriter, updates: list[FileUpdate], files: tuple[WeightFile, ...]
) -> None:
    with suppress(OSError):
        writer.abandon()
        for update in updates:
            update.close()
    discard(disk, directory, [REDO_TMP, *(f"{NEW}{file.name}" for file in files)])
