"""Syncs of real directories: what is chosen, what is written, what is refused and left as it was."""

import fcntl
import json
import os
import random
import stat
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from support import sharded_model as model

from apollod.errors import ApolloError, ModelEdited, ModelRefused, RedoRefused, SyncError, WeightsLocked
from apollod.store import apply, block_table, file_update, sync
from apollod.store.access import REDO, WeightsLock, check_writable, interrupted
from apollod.store.disk import REAL
from apollod.store.pieces import Piece


@pytest.fixture
def chance():
    return random.Random(3)


@pytest.fixture
def old(chance):
    return model.model(chance, 2, (40, 60))


@pytest.fixture
def directory(tmp_path, old):
    return model.write(tmp_path / "m", old)


def _all(chance, files, share):
    """Every file changed, none left out."""
    new = files
    while any(new[name] == files[name] for name in files if name.endswith(".safetensors")):
        new = model.changed(chance, files, share)
    return new


def test_few_changes_are_written_in_place_and_many_as_new_files(chance, old, directory):
    inodes = [path.stat().st_ino for path in sorted(directory.glob("*.safetensors"))]
    sparse = _all(chance, old, 0.1)
    done = sync.sync(directory, model.pieces(sparse), 1)
    assert model.read(directory, old) == sparse
    if {file.how for file in done.files} != {"reflink"}:
        assert {file.how for file in done.files} == {"blocks"}
        assert [path.stat().st_ino for path in sorted(directory.glob("*.safetensors"))] == inodes
    assert 2 * 4096 * done.changed_blocks < done.bytes_written < 2 * 4096 * done.changed_blocks + 20_000
    dense = _all(chance, sparse, 0.9)
    done = sync.sync(directory, model.pieces(dense), 2)
    assert model.read(directory, old) == dense
    assert {file.how for file in done.files} <= {"rewrite", "reflink"}
    assert (done.generation, done.step) == (2, 2)


def test_unchanged_files_are_not_read_back(chance, old, directory, monkeypatch):
    weights = old
    for share in (0.0, 0.1, 1.0):
        weights = _all(chance, weights, share) if share else old
        sync.sync(directory, model.pieces(weights), 1)
        with monkeypatch.context() as patched:
            read = []
            patched.setattr(block_table, "hash_file", lambda *given, read=read: read.append(given))
            weights = _all(chance, weights, 0.1)
            sync.sync(directory, model.pieces(weights), 2)
        assert not read
    assert model.read(directory, weights) == weights


def test_a_hard_link_keeps_its_bytes_and_modes_stay(chance, old, directory):
    name = sorted(old)[0]
    (directory / name).chmod(0o640)
    os.link(directory / name, directory.parent / "untrained")
    done = sync.sync(directory, model.pieces(_all(chance, old, 0.05)))
    assert done.files[0].how in ("rewrite", "reflink")
    assert (directory.parent / "untrained").read_bytes() == old[name]
    assert (directory / name).read_bytes() != old[name]
    assert stat.S_IMODE((directory / name).stat().st_mode) == 0o640


@pytest.mark.parametrize("early", [4096, 1 << 20])
@pytest.mark.parametrize("kept", [3, 1000])
@pytest.mark.parametrize("share", [0.02, 0.25, 0.5, 1.0])
def test_memory_is_bounded_by_spilling_or_by_a_new_file(share, kept, early, chance, old, directory, monkeypatch):
    """As with 64 MiB and a large model: some images are in the redo record already when a file turns out to be
    dense."""
    monkeypatch.setattr(file_update, "HELD_BYTES", 3 * 4096)
    monkeypatch.setattr(file_update, "KEPT_BYTES", kept * 4096)
    monkeypatch.setattr(file_update, "EARLY_BYTES", early)
    held = []
    seen = file_update.FileUpdate._held_bytes
    monkeypatch.setattr(file_update.FileUpdate, "_held_bytes", lambda self: held.append(seen(self)) or held[-1])
    new = _all(chance, old, share)
    sync.sync(directory, model.pieces(new))
    assert model.read(directory, new) == new
    assert max(held, default=0) <= 3 * 4096


def test_changes_at_the_end_only_spill_and_then_turn_dense(old, directory, monkeypatch):
    monkeypatch.setattr(file_update, "HELD_BYTES", 2 * 4096)
    new = dict(old)
    for name, content in old.items():
        if name.endswith(".safetensors"):
            half = len(content) // 2
            new[name] = content[:half] + bytes(byte ^ 1 for byte in content[half:])
    sync.sync(directory, model.pieces(new))
    assert model.read(directory, new) == new


def test_what_stays_in_memory_are_the_first_images(tmp_path, monkeypatch):
    """Two blocks that fit, two that do not, one that would again."""
    monkeypatch.setattr(file_update, "KEPT_BYTES", 3 * 4096)
    monkeypatch.setattr(file_update, "EARLY_BYTES", 4096)
    name, head = "model.safetensors", model.header_of([("w", "U8", (400_000,), 400_000)])
    content = head + random.Random(0).randbytes(400_000)
    directory = model.write(tmp_path / "m", {name: content})
    new = bytearray(content)
    for block in (3, 7, 33, 37, 63):
        new[block * 4096] ^= 1
    cuts = [len(head), *(number * 4096 for number in (30, 60, 90)), len(content)]
    pieces = [Piece(name, begin, bytes(new[begin:end])) for begin, end in pairwise(cuts)]
    assert sync.sync(directory, pieces).files[0].how == "blocks"
    assert (directory / name).read_bytes() == new


def test_an_edit_by_hand_is_not_overwritten_unless_asked(chance, old, directory):
    sync.sync(directory, model.pieces(old), 3)
    name = sorted(old)[1]
    edited = bytearray(old[name])
    edited[-5] ^= 255
    (directory / name).write_bytes(edited)
    new = _all(chance, old, 0.1)
    with pytest.raises(ModelEdited, match=rf"{name} \(1 blocks of 4096 bytes\) .* changed after sync 0 \(step 3\)"):
        sync.sync(directory, model.pieces(new))
    assert (directory / name).read_bytes() == edited
    sync.sync(directory, model.pieces(new), accept_edits=True)
    assert model.read(directory, new) == new


def test_files_that_were_only_touched_or_copied_are_no_edit(chance, old, directory):
    sync.sync(directory, model.pieces(old), 3)
    for path in directory.glob("*.safetensors"):
        os.utime(path)
    new = _all(chance, old, 0.1)
    sync.sync(directory, model.pieces(new))
    assert model.read(directory, new) == new


def test_another_model_in_the_directory_is_not_taken_for_the_old_one(chance, old, directory):
    sync.sync(directory, model.pieces(old), 3)
    other = model.model(chance, 2, (10, 20))
    model.write(directory, other)
    with pytest.raises(ModelEdited, match="names or headers differ"):
        sync.sync(directory, model.pieces(other))
    sync.sync(directory, model.pieces(other), accept_edits=True)
    assert model.read(directory, other) == other


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:9], lambda data: b"", lambda data: data[:-40] + b"x" * 40]
)
def test_a_damaged_block_table_is_made_anew(damage, chance, old, directory):
    sync.sync(directory, model.pieces(old))
    table = directory / block_table.TABLE
    table.write_bytes(damage(table.read_bytes()))
    new = _all(chance, old, 0.1)
    sync.sync(directory, model.pieces(new))
    assert model.read(directory, new) == new


# --- redo records ---------------------------------------------------------------------------------------------------


def _committed(directory, pieces, monkeypatch):
    """A sync that stops right after its commit point."""
    with monkeypatch.context() as patched:
        patched.setattr(sync.Finishing, "put", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sync.sync(directory, pieces, 5)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_what_was_committed_is_finished_by_the_next_sync_too(share, chance, old, directory, monkeypatch):
    new = _all(chance, old, share)
    _committed(directory, model.pieces(new), monkeypatch)
    assert model.read(directory, old) == old
    found = sync.recover(directory)
    assert (found.applied, found.generation, found.step) == (True, 1, 5)
    assert model.read(directory, new) == new
    assert not sync.recover(directory).applied
    last = _all(chance, new, share)
    _committed(directory, model.pieces(last), monkeypatch)
    sync.sync(directory, model.pieces(old), 6)
    assert model.read(directory, old) == old


def test_a_redo_record_of_another_model_is_refused_and_nothing_is_touched(chance, old, directory, monkeypatch):
    _committed(directory, model.pieces(_all(chance, old, 0.1)), monkeypatch)
    other = model.model(chance, 2, (40, 60))
    model.write(directory, other)
    for action in (lambda: sync.recover(directory), lambda: sync.sync(directory, model.pieces(other))):
        with pytest.raises(RedoRefused, match="belongs to another model"):
            action()
    assert model.read(directory, other) == other
    assert (directory / REDO).exists()


def test_a_damaged_redo_record_is_refused_and_says_what_is_intact(chance, old, directory, monkeypatch):
    sync.sync(directory, model.pieces(old), 4)
    _committed(directory, model.pieces(_all(chance, old, 0.1)), monkeypatch)
    record = (directory / REDO).read_bytes()
    for at in (5000, len(record) - 100, len(record) - 3, 4096):
        (directory / REDO).write_bytes(record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :])
        with pytest.raises(RedoRefused) as refused:
            sync.recover(directory)
        assert "all files hold the whole weights of sync 0 (step 4)" in refused.value.hint
    (directory / REDO).write_bytes(record[:4000])
    name = sorted(old)[0]
    torn = bytearray(old[name])
    torn[-1] ^= 1
    (directory / name).write_bytes(torn)
    with pytest.raises(RedoRefused) as refused:
        sync.recover(directory)
    assert f"not: {name} (1 blocks)" in refused.value.hint
    assert f"intact: {sorted(old)[1]}" in refused.value.hint
    assert (directory / name).read_bytes() == torn


def test_a_new_file_damaged_after_the_commit_is_refused(chance, old, directory, monkeypatch):
    _committed(directory, model.pieces(_all(chance, old, 1.0)), monkeypatch)
    new = next((directory / ".apollod").glob("new.*"))
    data = bytearray(new.read_bytes())
    data[-1] ^= 1
    new.write_bytes(data)
    with pytest.raises(RedoRefused, match="is not what the redo record"):
        sync.recover(directory)
    assert model.read(directory, old) == old


# --- what the caller brings -----------------------------------------------------------------------------------------


def _misfits(old):
    good = list(model.pieces(old))
    yield "nothing came", good[:-1]
    yield "after the last file", [*good, Piece("more", 0, b"x")]
    yield r"from byte \d+ on came where", [good[0], *good[2:]]
    yield r"from byte \d+ on came where", [*good[1:]]
    yield "bytes came at byte", [*good[:-1], good[-1]._replace(data=good[-1].data + b"xx")]


def test_pieces_that_do_not_fit_leave_everything_as_it_was(old, directory):
    for said, pieces in _misfits(old):
        with pytest.raises(SyncError, match=said) as failed:
            sync.sync(directory, [p._replace(data=bytes(len(p.data))) for p in pieces])
        assert not failed.value.committed
        assert model.read(directory, old) == old
        assert sorted(path.name for path in (directory / ".apollod").iterdir()) == ["weights.lock"]


def test_an_error_of_the_caller_passes_through(old, directory):
    def pieces():
        yield from list(model.pieces(old))[:3]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sync.sync(directory, pieces())
    assert sorted(path.name for path in (directory / ".apollod").iterdir()) == ["weights.lock"]


# --- directories ----------------------------------------------------------------------------------------------------


def _unsettled(directory, chance, old):
    new = _all(chance, old, 0.1)
    return new, sync.put_weights(REAL, directory, model.pieces(new), 3)


def test_loaders_get_in_while_a_sync_settles_and_writers_do_not(chance, old, directory):
    with WeightsLock(directory) as lock:
        new, put = _unsettled(directory, chance, old)
        assert model.read(directory, new) == new
        assert interrupted(directory), "so far nobody says that the files are whole"
        with lock.settling() as ours:
            assert ours and not interrupted(directory)
            with WeightsLock(directory, shared=True), pytest.raises(WeightsLocked):
                sync.recover(directory)
            put.settle()
        assert not (directory / REDO).exists()
    assert not sync.recover(directory).applied
    assert model.read(directory, new) == new


def test_a_writer_that_comes_between_settles_and_is_not_disturbed(chance, old, directory, monkeypatch):
    """The system gives the lock up before it makes it a shared one."""
    convert = fcntl.flock

    def flock(fd, kind):
        if kind == fcntl.LOCK_SH | fcntl.LOCK_NB and os.readlink(f"/proc/self/fd/{fd}").endswith("weights.lock"):
            convert(fd, fcntl.LOCK_UN)
            monkeypatch.undo()
            monkeypatch.setattr(file_update, "DENSE_SHARE", 0.3)
            sync.sync(directory, model.pieces(last), 4)
        convert(fd, kind)

    with WeightsLock(directory) as lock:
        new, put = _unsettled(directory, chance, old)
        last = _all(chance, new, 0.1)
        monkeypatch.setattr(fcntl, "flock", flock)
        with lock.settling() as ours:
            assert not ours
        put.abandon()
    assert sync.sync(directory, model.pieces(last), 4).generation == 2
    assert model.read(directory, last) == last


def test_a_second_writer_is_refused_and_loaders_share(old, directory):
    with WeightsLock(directory, shared=True), WeightsLock(directory, shared=True):
        with pytest.raises(WeightsLocked, match=f"pid {os.getpid()} .*reads"):
            sync.sync(directory, model.pieces(old))
    with WeightsLock(directory), pytest.raises(WeightsLocked, match=f"pid {os.getpid()} .*writes"):
        sync.recover(directory)
    sync.sync(directory, model.pieces(old))


def test_a_hub_cache_is_refused_with_the_command_that_makes_a_copy(old, tmp_path, monkeypatch):
    blobs, snapshot = tmp_path / "hub/models--org--tiny/blobs", tmp_path / "hub/models--org--tiny/snapshots/abc"
    model.write(blobs, old)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(os.path.relpath(path, snapshot))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(ModelRefused, match="lies in the Hugging Face cache") as refused:
        sync.sync(snapshot, model.pieces(old))
    command = refused.value.hint.split("`")[1]
    subprocess.run(["bash", "-c", command], check=True)
    copy = tmp_path / "home/models/tiny"
    assert not (copy / sorted(old)[0]).is_symlink()
    sync.sync(copy, model.pieces(old))
    assert model.read(blobs, old) == old


def test_other_places_that_are_not_ours(old, directory, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(ModelRefused, match="Hugging Face cache"):
        check_writable(model.write(tmp_path / "hub/anything", old))
    check_writable(directory)
    linked = directory / sorted(old)[0]
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelRefused, match="is a link to"):
        check_writable(directory)
    with pytest.raises(ModelRefused, match="is no directory"):
        check_writable(tmp_path / "none")


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_a_directory_of_somebody_else_is_refused(old):
    code = (
        "import os, sys; from pathlib import Path; from apollod.store.access import check_writable; "
        "os.setuid(65534); check_writable(Path(sys.argv[1]))"
    )
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        directory = model.write(Path(place) / "m", old)
        done = subprocess.run([sys.executable, "-c", code, directory], capture_output=True, text=True, check=False)
    assert "is not ours to write" in done.stderr


# --- headers --------------------------------------------------------------------------------------------------------


def _entry(begin, end, shape=(4,), dtype="BF16"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def _file(table, data=16):
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


BAD_HEADERS = {
    "it has 5 bytes": b"\x01\x02\x03\x04\x05",
    "allowed are 100000000": (1 << 63).to_bytes(8, "little") + b"{}",
    "in a file of 30": (2000).to_bytes(8, "little") + b"{" * 22,
    "JSONDecodeError": _file(b'{"a": nonsense}'),
    "UnicodeDecodeError": _file(b'{"\xff\xfe": 1}'),
    "nested too deep": _file(b'{"a":' * 200_000),
    "twice": _file(b'{"a":' + json.dumps(_entry(0, 8)).encode() + b',"a":' + json.dumps(_entry(8, 16)).encode() + b"}"),
    "'b' starts at byte|b starts at byte": _file({"a": _entry(0, 8), "b": _entry(4, 12)}),
    "starts at byte .*, not": _file({"a": _entry(0, 4, (2,)), "b": _entry(8, 16)}),
    "in 6 bytes": _file({"a": _entry(0, 6)}),
    "of shape .-4": _file({"a": _entry(0, 8, (-4, -1))}),
    "its header says": _file({"a": _entry(0, 8)}),
    "is stored as F8_E4M3": _file({"a": _entry(0, 16, (16,), "F8_E4M3")}),
    "no safetensors file": _file(b"[1, 2]"),
    "KeyError": _file({"a": {"dtype": "BF16"}}),
}


@pytest.mark.parametrize("said", BAD_HEADERS)
def test_a_bad_header_is_named_and_nothing_is_written(said, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(BAD_HEADERS[said])
    with pytest.raises(ModelRefused, match=said):
        sync.sync(tmp_path, iter(()))
    assert path.read_bytes() == BAD_HEADERS[said]


def test_a_missing_shard_and_a_bad_index(old, directory):
    sync.sync(directory, model.pieces(old))
    gone = directory / sorted(old)[0]
    gone.rename(directory / "aside")
    with pytest.raises(ModelRefused, match=f"{gone.name} cannot be read"):
        sync.sync(directory, model.pieces(old))
    for text, said in (
        (b"{", "damaged"),
        (b'{"weight_map": {"a": "../x"}}', "outside"),
        (b'{"weight_map": {}}', "names no file"),
    ):
        (directory / "model.safetensors.index.json").write_bytes(text)
        with pytest.raises(ModelRefused, match=said):
            sync.sync(directory, model.pieces(old))


def test_recovery_of_what_was_never_synced_does_nothing(old, directory):
    found = sync.recover(directory)
    assert (found.applied, found.dropped, found.generation) == (False, (), None)
    assert isinstance(apply.recover_files(REAL, directory), apply.Recovered)
    with pytest.raises(ApolloError):
        sync.recover(directory / "none")
