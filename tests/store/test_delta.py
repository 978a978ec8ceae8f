"""Undo deltas: both directions to the bit, and nothing but the weights they belong to."""

import random

import numpy as np
import pytest
from support import sharded_model as model
from support.sim_disk import SimDisk

from apollod.errors import DeltaRefused, SyncError
from apollod.store import delta, sync
from apollod.store.block_table import current_table
from apollod.store.disk import RealDisk
from apollod.store.model_files import read_files
from apollod.store.pieces import Piece, directory_pieces


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(delta, "CHUNK_BYTES", 8192)


@pytest.fixture
def history(tmp_path):
    """(directory holding `old`, old, new, delta between them)."""
    chance = random.Random(4)
    old = model.model(chance, 3, (5, 20))
    new = model.changed(chance, old, 0.5)
    directory = model.write(tmp_path / "m", old)
    path = tmp_path / "delta"
    delta.write_delta(path, read_files(directory), model.pieces(old), model.pieces(new, 333), (6, 7))
    return directory, old, new, path


def _joined(pieces):
    files = {}
    for piece in pieces:
        files[piece.file] = files.get(piece.file, b"") + bytes(piece.data)
    return files


def _data(files):
    return _joined(model.pieces(files))


def test_it_leads_from_either_side_to_the_other(history):
    directory, old, new, path = history
    files = read_files(directory)
    assert _joined(delta.apply_delta(path, files, model.pieces(old, 999))) == _data(new) != _data(old)
    assert _joined(delta.apply_delta(path, files, model.pieces(new))) == _data(old)
    info = delta.read_delta(path)
    assert (info.head.step_before, info.head.step_after, info.bytes) == (6, 7, path.stat().st_size)
    assert info.before != info.after


def test_the_hashes_of_one_side_are_those_of_the_next_delta(history, tmp_path):
    directory, _, new, path = history
    newer = model.changed(random.Random(1), new, 0.5)
    later = delta.write_delta(
        tmp_path / "later", read_files(directory), model.pieces(new, 4444), model.pieces(newer), (7, 8)
    )
    assert later.before == delta.read_delta(path).after


def test_a_sync_can_take_it_from_the_directory_itself(history):
    directory, old, new, path = history
    files = read_files(directory)
    for there in (new, old):
        sync.sync(directory, delta.apply_delta(path, files, directory_pieces(directory, files)))
        assert model.read(directory, there) == there


class CountingDisk(RealDisk):
    """The real files; `bytes`: read of them."""

    bytes = 0

    def read(self, fd, offset, count):
        data = super().read(fd, offset, count)
        self.bytes += len(data)
        return data


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_of_the_old_weights_only_what_changes_is_read(tmp_path, share):
    chance = random.Random(11)
    old = model.model(chance, 2, (300, 600))
    directory = model.write(tmp_path / "m", old)
    files = read_files(directory)
    sync.sync(directory, model.pieces(old), 6)  # leaves the table
    new = {name: _changed_blocks(chance, content, share) for name, content in old.items()}
    counted = CountingDisk()
    table = current_table(counted, directory, files)
    counted.bytes = 0
    before = delta.old_pieces(counted, directory, files, table, model.pieces(new, 333))
    found = delta.write_delta(tmp_path / "delta", files, before, model.pieces(new), (6, 7))
    whole = delta.write_delta(tmp_path / "whole", files, directory_pieces(directory, files), model.pieces(new), (6, 7))
    assert found == whole and (tmp_path / "delta").read_bytes() == (tmp_path / "whole").read_bytes()
    changed = sum(_differing(old[name], new[name]) for name in old)
    assert changed * model.BLOCK <= counted.bytes + model.BLOCK * len(files)  # a file's last block is short
    assert counted.bytes <= changed * model.BLOCK * (1 + delta.GAP_BLOCKS)
    if share <= 0.02:
        assert counted.bytes < 0.1 * sum(map(len, old.values()))


def test_a_file_that_is_cut_short_meanwhile_is_told(tmp_path):
    old = model.model(random.Random(1), 1, (20, 20))
    directory = model.write(tmp_path / "m", old)
    files = read_files(directory)
    table = current_table(RealDisk(), directory, files)
    new = {name: content[:-1] + bytes([content[-1] ^ 1]) for name, content in old.items()}
    (directory / files[0].name).write_bytes(old[files[0].name][:-4000])
    with pytest.raises(SyncError, match="ends inside the weights"):
        _joined(delta.old_pieces(RealDisk(), directory, files, table, model.pieces(new)))


def _changed_blocks(chance, content, share):
    """This share of a file's blocks is another one, where it holds data."""
    if b"__metadata__" not in content[:40]:
        return content  # the index
    data, start = bytearray(content), model.data_start(content)
    for offset in range(-(-start // model.BLOCK) * model.BLOCK, len(data), model.BLOCK):
        if chance.random() < share:
            data[offset] ^= 255
    return bytes(data)


def _differing(one, other):
    return sum(one[at : at + model.BLOCK] != other[at : at + model.BLOCK] for at in range(0, len(one), model.BLOCK))


def test_every_dtype_and_odd_sizes(tmp_path):
    tensors = [
        ("a", "F32", (3,), 12),
        ("b", "U8", (5,), 5),
        ("c", "F64", (1025,), 8200),
        ("d", "BF16", (0,), 0),
        ("e", "BF16", (7,), 14),
    ]
    chance = random.Random(8)
    head, total = model.header_of(tensors), sum(t[3] for t in tensors)
    old, new = ({"model.safetensors": head + chance.randbytes(total)} for _ in range(2))
    files = read_files(model.write(tmp_path / "m", old))
    delta.write_delta(tmp_path / "delta", files, model.pieces(old), model.pieces(new), (0, 1))
    assert _joined(delta.apply_delta(tmp_path / "delta", files, model.pieces(old))) == _data(new)


def test_equal_weights_cost_next_to_nothing_and_stay(history, tmp_path):
    directory, old, _, _ = history
    files = read_files(directory)
    written = delta.write_delta(tmp_path / "none", files, model.pieces(old), model.pieces(old), (6, 6))
    assert written.before == written.after
    assert written.bytes < sum(map(len, old.values())) / 50
    assert _joined(delta.apply_delta(tmp_path / "none", files, model.pieces(old))) == _data(old)


def test_other_weights_are_refused(history):
    directory, old, new, path = history
    files = read_files(directory)
    other = model.changed(random.Random(2), old, 0.3)
    with pytest.raises(DeltaRefused, match="is neither what it was before"):
        _joined(delta.apply_delta(path, files, model.pieces(other)))
    name = sorted(name for name in old if old[name] != new[name])[-1]
    with pytest.raises(DeltaRefused, match="is neither what it was before"):
        _joined(delta.apply_delta(path, files, model.pieces(old | {name: new[name]})))  # half of each side
    with pytest.raises(DeltaRefused, match="belongs to another model"):
        _joined(delta.apply_delta(path, files[:2], model.pieces(old)))


def test_any_damage_is_found_before_a_sync_can_commit_it(history):
    directory, old, new, path = history
    files, data, refused = read_files(directory), path.read_bytes(), 0
    chance = random.Random(0)
    for at in [0, 9, 13, len(data) - 1, *(chance.randrange(len(data)) for _ in range(300))]:
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])
        try:
            assert _joined(delta.apply_delta(path, files, model.pieces(old))) == _data(new), (
                "wrong bytes were taken for good ones"
            )
        except DeltaRefused:
            refused += 1
    assert refused >= 300  # a bit of a compressed frame that means nothing does no harm
    for size in (0, 5, 11, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(DeltaRefused):
            delta.read_delta(path)


def test_a_full_disk_leaves_no_delta_and_no_part_of_one(history):
    directory, old, new, _ = history
    files, number = read_files(directory), 0
    while True:
        number += 1
        disk = SimDisk(0)
        disk.fail_at = number
        try:
            delta.write_delta(directory / "d", files, model.pieces(old), model.pieces(new), (0, 1), disk)
        except SyncError:
            assert [path for path in disk.paths() if path.endswith(".tmp")] == []
            continue
        break
    assert number > 10


def test_two_bytes_of_an_element_are_planes(tmp_path):
    """Low bytes that change a little pack better apart from high bytes that do not."""
    chance = np.random.default_rng(0)
    words = chance.normal(0, 0.02, 200_000).astype(np.float32).view(np.uint32) >> 16
    old = words.astype(np.uint16)
    new = old ^ (chance.random(old.size) < 0.2).astype(np.uint16)
    head = model.header_of([("w", "BF16", (old.size,), old.nbytes)])
    files = read_files(model.write(tmp_path / "m", {"model.safetensors": head + old.tobytes()}))
    sides = [[Piece("model.safetensors", len(head), side)] for side in (old, new)]
    written = delta.write_delta(tmp_path / "delta", files, *sides, (0, 1))
    assert written.bytes < old.nbytes / 8
