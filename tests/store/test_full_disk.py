"""Every operation of a sync and of a recovery fails once with ENOSPC: what is said is true, and nothing is lost."""

import copy
import random
from pathlib import Path

import pytest
from support import sharded_model as model
from support.effort import cases
from support.sim_disk import SimDisk

from apollod.errors import SyncError
from apollod.store import apply, file_update
from apollod.store.sync import write_weights

ROOT = Path("/m")
SEEDS = pytest.mark.parametrize("seed", cases([0, 1], [2, 3, 4, 5]))
"""An even and an odd one: most blocks change and writes are direct; few do, after an earlier sync."""


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    """Of few blocks: else they are hardly ever written in place."""
    monkeypatch.setattr(file_update, "DENSE_SHARE", 0.3)


def _synced(seed, clones):
    chance = random.Random(seed)
    old = model.model(chance, 3)
    disk = SimDisk(seed, clones, direct=seed % 2 == 0)
    for name, content in old.items():
        disk.put(str(ROOT / name), content)
    if seed % 2:
        write_weights(disk, ROOT, model.pieces(old), 1)
    new = old
    while new == old:
        new = model.changed(chance, old, 0.2 if seed % 3 else 0.5)
    return disk, old, new


def _holds(disk, files):
    return all(disk.content(str(ROOT / name)) == content for name, content in files.items())


def _operations(disk, action):
    rehearsal = copy.deepcopy(disk)
    rehearsal.operations = 0
    action(rehearsal)
    return rehearsal.operations


@pytest.mark.parametrize("clones", [False, True])
@SEEDS
def test_a_full_disk_at_every_operation_of_a_sync(seed, clones):
    fresh, old, new = _synced(seed, clones)
    count = _operations(fresh, lambda d: write_weights(d, ROOT, model.pieces(new), 2))
    committed = 0
    for number in range(1, count + 1):
        disk = copy.deepcopy(fresh)
        disk.operations, disk.fail_at = 0, number
        with pytest.raises(SyncError) as failed:
            write_weights(disk, ROOT, model.pieces(new), 2)
        disk.fail_at = None
        committed += failed.value.committed
        if not failed.value.committed:
            assert _holds(disk, old), f"operation {number}"
        apply.recover_files(disk, ROOT)
        assert _holds(disk, new if failed.value.committed and not _renaming(disk) else old), f"operation {number}"
        write_weights(disk, ROOT, model.pieces(new), 2)
        assert _holds(disk, new)
    assert 0 < committed < count


def _renaming(disk):
    """The rename that commits failed itself: it may have happened or not, here it has not."""
    return disk.failed == ("rename", "redo")


@SEEDS
def test_a_full_disk_at_every_operation_of_a_recovery(seed):
    fresh, old, new = _synced(seed, False)
    count = _operations(fresh, lambda d: write_weights(d, ROOT, model.pieces(new), 2))
    for crash in range(1, count + 1):
        crashed = copy.deepcopy(fresh)
        crashed.operations, crashed.fail_at = 0, crash
        with pytest.raises(SyncError):
            write_weights(crashed, ROOT, model.pieces(new), 2)
        crashed.fail_at = None
        for number in range(1, _operations(crashed, lambda d: apply.recover_files(d, ROOT)) + 1):
            disk = copy.deepcopy(crashed)
            disk.operations, disk.fail_at = 0, number
            with pytest.raises(SyncError):
                apply.recover_files(disk, ROOT)
            disk.fail_at = None
            apply.recover_files(disk, ROOT)
            assert _holds(disk, new) or _holds(disk, old)
