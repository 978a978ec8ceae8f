"""Power lost at a random operation of a sync, and of the recovery after it, on a simulated disk under the real code.

APOLLOD_SYNC_SEEDS runs (`make crash`: 3000), or the first 300 and those in which mutants tear that are harder to find:
the same code with one of its precautions taken away. Each of them has to tear in one of these runs.
"""

import copy
import os
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from support import sharded_model as model
from support.effort import LONG
from support.sim_disk import PowerLost, SimDisk

from apollod.errors import ApolloError, SyncError
from apollod.store import appending, apply, file_update, redo, sync
from apollod.store.block_table import block_hashes
from apollod.store.disk import opened
from apollod.store.sync import put_weights, write_weights

COUNT = int(os.environ.get("APOLLOD_SYNC_SEEDS", "3000" if LONG else "0"))
SEEDS = range(COUNT) if COUNT else [*range(300), *range(620, 640), *range(740, 750)]
MUTANT_SEEDS = 3000
ROOT = Path("/m")


def _disk(disk_class, chance, seed, files):
    disk = disk_class(seed, clones=chance.random() < 0.25, direct=chance.random() < 0.5)
    for name, content in files.items():
        disk.put(str(ROOT / name), content, links=chance.choice([1, 1, 1, 2]))
    return disk


def _holds(disk, files):
    return all(disk.content(str(ROOT / name)) == content for name, content in files.items())


def _interrupted(disk, chance, action):
    """Run `action` and lose power at one of its operations, or right after it."""
    rehearsal = copy.deepcopy(disk)
    rehearsal.operations = 0
    action(rehearsal)
    disk.operations, disk.lose_power_at = 0, chance.randint(1, rehearsal.operations + 1)
    with suppress(PowerLost):
        action(disk)
    disk.power_on()


def _sync(disk, new, seen):
    """Both phases; `seen` gets what a reader sees between them, which is what was acknowledged."""
    put = put_weights(disk, ROOT, model.pieces(new), 10)
    seen.append(_holds(disk, new))
    put.settle()


def _sync_that_fails(disk, chance, new):
    """A flush, or whatever else, fails while it settles; was it so? Who comes next recovers, and may lose power,
    too."""
    put = put_weights(disk, ROOT, model.pieces(new), 10)
    rehearsal = copy.deepcopy((disk, put.finishing))  # together: the copy of one works on the copy of the other
    rehearsal[0].operations = 0
    if rehearsal[1] is not None:
        rehearsal[1].settle()
    disk.operations, disk.fail_at = 0, min(chance.randint(1, 6), max(1, rehearsal[0].operations))
    try:
        put.settle()
    except SyncError as error:
        assert error.committed
    disk.fail_at = None
    if chance.random() < 0.5:
        _interrupted(disk, chance, _recover)
    _recover(disk)
    disk.power_on()


def _recover(disk):
    return apply.recover_files(disk, ROOT)


def run(seed, disk_class=SimDisk):
    """One life of a model; what became of it: whole, torn, lost (acknowledged and gone), stuck (refused)."""
    chance = random.Random(seed)
    with (
        mock.patch.object(file_update, "DENSE_SHARE", 0.3),  # files of few blocks: else hardly ever in place
        mock.patch.object(file_update, "HELD_BYTES", chance.choice([64 << 20, 2 * 4096])),
        mock.patch.object(file_update, "EARLY_BYTES", chance.choice([1 << 20, 4096])),
        mock.patch.object(file_update, "KEPT_BYTES", chance.choice([64 << 20, 3 * 4096])),
        mock.patch.object(appending, "BUFFER_BYTES", chance.choice([8 << 20, 2 * 4096])),
    ):
        return _live(seed, disk_class, chance)


def _live(seed, disk_class, chance):
    old = model.model(chance, chance.choice([1, 2, 3]))
    disk = _disk(disk_class, chance, seed, old)
    for step in range(chance.randint(0, 2)):
        old = model.changed(chance, old, chance.choice([0.05, 0.2, 1.0]))
        write_weights(disk, ROOT, model.pieces(old), step)
    new = model.changed(chance, old, chance.choice([0.05, 0.2, 0.6, 1.0]))
    acked = []
    try:
        if chance.random() < 0.2:
            _sync_that_fails(disk, chance, new)
            acked.append(True)
        else:
            _interrupted(disk, chance, lambda d: _sync(d, new, acked if d is disk else []))
        if chance.random() < 0.5:
            _interrupted(disk, chance, _recover)
        found = _recover(disk)
        if not all(acked) or (not _holds(disk, new) and not _holds(disk, old)):
            return "torn"
        if acked and not (_holds(disk, new) and found.step == 10):  # the step says whether a checkpoint is committed
            return "lost"
        last = model.changed(chance, new, 0.3)
        write_weights(disk, ROOT, model.pieces(last), 11)
    except ApolloError:
        return "stuck"
    left = [path for path in disk.paths() if "/.apollod/" in path and not path.endswith("blocks.bin")]
    return "whole" if _holds(disk, last) and not left else "torn"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_whatever_is_lost_with_the_power_the_weights_are_one_generation():
    outcomes = {seed: run(seed) for seed in SEEDS}
    bad = [seed for seed, outcome in outcomes.items() if outcome != "whole"]
    assert not bad, f"seeds {bad[:5]}: {Counter(outcomes.values())}"


# --- mutants: each has to be found out -----------------------------------------------------------------------------


class RedoNotFlushed(SimDisk):
    def fsync(self, fd, name="fsync"):
        if not self._fds[fd][0].endswith("redo.tmp"):
            super().fsync(fd, name)


class DirectoryNotFlushed(SimDisk):
    def fsync_dir(self, path):
        pass


class FilesNotFlushed(SimDisk):
    """Neither blocks in place nor new files."""

    def fsync(self, fd, name="fsync"):
        if not self._fds[fd][0].endswith(".safetensors"):
            super().fsync(fd, name)


class FlushedTooEarly(SimDisk):
    """The thread that appends to new files is not waited for: its last write comes after the flush."""

    def fsync(self, fd, name="fsync"):
        path, inode = self._fds[fd]
        if path.endswith(".safetensors") and "/.apollod/new." in path and len(inode.pending) > 1:
            *early, (offset, data) = inode.pending
            super().fsync(fd, name)
            inode.pending = [(offset, data)]
            inode.durable = bytearray()
            for at, part in early:
                inode.durable[at : at + len(part)] = part
        else:
            super().fsync(fd, name)


class TableNotFlushed(SimDisk):
    """The record goes before the table that has its generation is on the disk."""

    def fsync(self, fd, name="fsync"):
        if not self._fds[fd][0].endswith("blocks.bin.tmp"):
            super().fsync(fd, name)


class NewNamesNotFlushed(SimDisk):
    """The directory is not flushed before the record that speaks of new files gets its name."""

    def fsync_dir(self, path):
        if self.stat("/m/.apollod/redo") is not None or "redo.tmp" not in self.names("/m/.apollod"):
            super().fsync_dir(path)


def _found(disk_class, kinds, first=0):
    """The first run that ends in one of these ways. None before `first` does, which only `make crash` looks at."""
    seeds = range(MUTANT_SEEDS) if COUNT else [seed for seed in SEEDS if seed >= first]
    return next((seed for seed in seeds if _outcome(seed, disk_class) in kinds), None)


def _outcome(seed, disk_class):
    try:
        return run(seed, disk_class)
    except (ApolloError, OSError, KeyError):
        return "stuck"


MUTANTS = [RedoNotFlushed, DirectoryNotFlushed, FilesNotFlushed, FlushedTooEarly, TableNotFlushed, NewNamesNotFlushed]
FIRST = {NewNamesNotFlushed: 740}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_one_of_its_flushes_it_fails(mutant):
    assert _found(mutant, {"torn", "lost", "stuck"}, FIRST.get(mutant, 0)) is not None


def test_a_record_removed_before_the_files_are_flushed_tears(monkeypatch):
    def settle(self):
        self._disk.unlink(self._redo.path)
        self._disk.fsync_dir(str(ROOT / ".apollod"))
        for fd in self._unflushed:
            self._disk.fdatasync(fd)
        self.close()
        self._disk.fsync_dir(str(ROOT))
        return apply._put_table(self._disk, self._directory, self._redo, self._table, self._verified)

    monkeypatch.setattr(apply.Finishing, "settle", settle)
    assert _found(SimDisk, {"torn"}) is not None


def test_a_failed_flush_that_is_simply_tried_again_tears(monkeypatch):
    settled = apply.Finishing.settle

    def settle(self):
        for fd in self._unflushed:
            with suppress(OSError):
                self._disk.fdatasync(fd)
        return settled(self)

    monkeypatch.setattr(apply.Finishing, "settle", settle)
    assert _found(SimDisk, {"torn"}, first=620) is not None


def test_without_checksums_it_tears(monkeypatch):
    """A record whose bytes are not all there is applied as if they were."""
    monkeypatch.setattr(apply, "verify_images", lambda *_: None)
    monkeypatch.setattr(apply, "_verify_new_files", lambda *_: None)
    assert _found(RedoNotFlushed, {"torn"}) is not None


def test_with_differences_instead_of_whole_blocks_it_tears(monkeypatch):
    """What a torn block was before is not known, so a difference does not repair it."""
    written = redo.RedoWriter.close

    def differences(disk, part):
        with opened(disk, str(ROOT / part.file.name)) as old, opened(disk, str(ROOT / redo.REDO_TMP)) as source:
            for blocks, images in redo.images(disk, source, part):
                for at, block in enumerate(blocks):
                    before = np.frombuffer(disk.read(old, int(block) * 4096, 4096).ljust(4096, b"\0"), np.uint8)
                    yield part.file.image + at * 4096, images[at] ^ before

    def close(self, head, parts):
        for part in parts:
            if part.file.how == "blocks":
                changes = list(differences(self._disk, part))
                for offset, data in changes:
                    self._disk.write(self._open(), offset, data)
                part.hashes.setflags(write=True)
                part.hashes[:] = block_hashes(np.concatenate([data for _, data in changes]))
        return written(self, head, parts)

    def put_blocks(self, part):
        disk, path = self._disk, str(self._directory / part.file.name)
        target = disk.open(path, write=True)
        self._unflushed.append(target)
        with opened(disk, self._redo.path) as source:
            for blocks, data in redo.images(disk, source, replace(part, kept=())):
                for block, change in zip(blocks, data, strict=True):
                    before = np.frombuffer(disk.read(target, int(block) * 4096, 4096).ljust(4096, b"\0"), np.uint8)
                    disk.write(target, int(block) * 4096, (before ^ change)[: part.file.size - int(block) * 4096])
        return 0

    monkeypatch.setattr(redo.RedoWriter, "close", close)
    monkeypatch.setattr(apply.Finishing, "_put_blocks", put_blocks)
    monkeypatch.setattr(sync, "current_table", lambda disk, directory, files, *_: sync_table(disk, directory, files))
    sync_table = _table_from_files
    assert _found(SimDisk, {"torn"}) is not None


def _table_from_files(disk, directory, files):
    """The mutant's hashes are those of differences, so its table is always made anew."""
    from apollod.store.block_table import current_table

    if disk.stat(str(directory / ".apollod/blocks.bin")) is not None:
        disk.unlink(str(directory / ".apollod/blocks.bin"))
    return current_table(disk, directory, files, True)
