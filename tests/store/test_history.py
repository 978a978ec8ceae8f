"""Histories of real directories: every step's weights come back to the bit, by whichever way is left, and damage is
told."""

import os
import random
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from support import in_memory
from support import sharded_model as model
from support.effort import cases
from support.kept_history import KeptHistory, weights_at

from apollod.errors import CheckpointError, DeltaRefused, WeightsLocked
from apollod.store import delta, sync
from apollod.store.access import WeightsLock
from apollod.store.entry import ENTRY, RECORD, STATE, UNDO, Entry, entries, read_entry, write_entry
from apollod.store.export import export
from apollod.store.fingerprint import directory_fingerprint
from apollod.store.history import History
from apollod.store.verify import verify

tmp_path = in_memory.tmp_path


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(delta, "CHUNK_BYTES", 8192)


def joined(pieces):
    files = {}
    for piece in pieces:
        files[piece.file] = files.get(piece.file, b"") + bytes(piece.data)
    return files


def data(files):
    return joined(model.pieces(files))


def flip(path: Path, at=None) -> None:
    content = bytearray(path.read_bytes())
    at = len(content) // 2 if at is None else at
    content[at] ^= 0x10
    path.write_bytes(content)


def check_all(kept: KeptHistory, history: History, numbers) -> None:
    for number in numbers:
        assert joined(weights_at(history, number)) == data(kept.was[number][1]), (
            f"other weights for checkpoint {number}"
        )


# --- which weights come back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", cases([*range(5)], [*range(5, 8)]))
def test_every_checkpoint_comes_back_bit_for_bit(tmp_path, seed):
    chance = random.Random(seed)
    count = chance.randint(3, 9)
    full = tuple(chance.sample(range(1, count + 1), chance.choice([0, 1, 2])))
    kept = KeptHistory(tmp_path, seed, chance.choice([1, 2, 3]), full).many(count)
    kept.drop(*range(1, chance.randint(1, count - 1)))
    left = [entry.number for _, entry in entries(kept.checkpoints).whole]
    before = kept.everything()
    history = kept.history()
    assert [held.entry.number for held in history.held] == left
    assert (history.model.step, history.model.fingerprint) == (kept.step, kept.was[count][2])
    check_all(kept, history, left)
    if left[0] == 1:
        assert joined(weights_at(history, "base")) == data(kept.was[0][1])
    assert kept.everything() == before


def test_forwards_from_the_base_when_the_model_directory_is_gone(tmp_path):
    kept = KeptHistory(tmp_path, 1).many(5)
    shutil.rmtree(kept.model_dir)
    history = kept.history()
    assert "holds neither" in history.model.problem
    assert (len(history.held), history.uncommitted) == (5, None)
    check_all(kept, history, range(1, 6))


def test_backwards_from_the_model_directory_where_no_base_was_kept(tmp_path):
    kept = KeptHistory(tmp_path, 2).many(5)
    history = kept.history(base=False)
    check_all(kept, history, range(1, 6))
    assert joined(weights_at(history, "base")) == data(kept.was[0][1])
    way = history.ways(history.point("base"))
    assert [(w.copy.kind, len(w.deltas)) for w in way] == [("model", 5)]


def test_from_a_full_one_in_the_middle_in_both_directions(tmp_path):
    kept = KeptHistory(tmp_path, 3, full=(3,)).many(6)
    kept.edit_model()
    history = kept.history(base=False)
    assert history.model.fingerprint not in {fingerprint for _, _, fingerprint in kept.was.values()}
    assert {w.copy.kind for n in range(1, 7) for w in history.ways(history.point(n))} == {"full"}
    check_all(kept, history, range(1, 7))


def test_the_nearest_copy_is_taken(tmp_path):
    kept = KeptHistory(tmp_path, 4, full=(3,)).many(6)
    history = kept.history()
    taken = [history.ways(history.point(n))[0].copy.kind for n in (1, 3, 6)]
    assert taken[1:] == ["full", "model"]
    assert [len(history.ways(history.point(n))[0].deltas) for n in (3, 6)] == [0, 0]
    assert all(len(history.ways(history.point(n))) == 3 for n in range(1, 7))


def test_a_rollback_makes_a_step_occur_twice_and_the_newest_counts(tmp_path):
    kept = KeptHistory(tmp_path, 5).many(4)
    back = kept.was[2]
    kept.write(weights=back[1], step=40)
    twice = model.changed(kept.chance, back[1], 0.3)
    kept.write(weights=twice, step=kept.was[4][0] + 100)
    second = kept.checkpoints / "step-again"
    shutil.move(kept.directory(40), second)
    entry = read_entry(second)
    write_entry(
        second, Entry(**{name: getattr(entry, name) for name in entry.__struct_fields__} | {"step": kept.was[2][0]})
    )
    history = kept.history()
    assert history.at_step(kept.was[2][0]).held.entry.number == 5
    check_all(kept, history, range(1, 7))
    kept.drop(3)  # the way over 5 and 6 is left: the rollback brought the same weights
    check_all(kept, kept.history(base=False), (1, 2, 4, 5, 6))


# --- what the model directory holds -------------------------------------------------------------------------------


def test_a_checkpoint_without_its_sync_is_no_part_of_the_history(tmp_path):
    kept = KeptHistory(tmp_path, 6).many(3)
    entry = kept.write(commit=False)
    history = kept.history()
    assert (history.uncommitted.entry, len(history.held), history.next_number) == (entry, 3, 5)
    assert (history.model.step, history.model.fingerprint) == (kept.step, kept.was[3][2])
    with pytest.raises(CheckpointError, match="is not committed: the model directory is not at step"):
        history.at_step(entry.step)
    (kept.model_dir / ".apollod/blocks.bin").unlink()
    assert kept.history().uncommitted.entry == entry


def test_a_checkpoint_of_steps_that_changed_nothing_is_told_by_its_step(tmp_path):
    kept = KeptHistory(tmp_path, 7).many(2)
    kept.write(weights=kept.weights)
    history = kept.history()
    assert (history.uncommitted, history.model.step) == (None, kept.step)
    entry = kept.write(weights=kept.weights, commit=False)
    assert kept.history().uncommitted.entry == entry
    check_all(kept, history, range(1, 4))


def test_without_a_block_table_the_weights_themselves_are_asked(tmp_path, monkeypatch):
    kept = KeptHistory(tmp_path, 8).many(3)
    asked = []
    monkeypatch.setattr(
        "apollod.store.history.directory_fingerprint", lambda path: asked.append(path) or directory_fingerprint(path)
    )
    assert kept.history().model.step == kept.step
    kept.write(commit=False)
    assert kept.history().uncommitted
    assert asked == []
    kept.drop_uncommitted()
    (kept.model_dir / ".apollod/blocks.bin").unlink()
    history = kept.history()
    assert (history.model.step, history.uncommitted, asked) == (kept.step, None, [kept.model_dir])


def test_a_sync_by_hand_between_reading_and_use_is_noticed(tmp_path):
    kept = KeptHistory(tmp_path, 9).many(3)
    history = kept.history(base=False)
    kept.write()
    with pytest.raises(CheckpointError, match="has changed meanwhile"):
        joined(weights_at(history, 3))


def test_nothing_at_all_is_an_empty_history(tmp_path):
    kept = KeptHistory(tmp_path, 10)
    history = kept.history()
    assert (history.held, history.broken, history.next_number) == ([], [], 1)
    assert joined(weights_at(history, "base")) == data(kept.weights)
    with pytest.raises(CheckpointError, match="there is no checkpoint of step 3"):
        history.at_step(3)


# --- damage -------------------------------------------------------------------------------------------------------


def problems(kept: KeptHistory, base=True) -> dict[int, list[str]]:
    return {one.held.entry.number: one.problems for one in verify(kept.history(base)).checkpoints if one.problems}


def reachable(kept: KeptHistory, base=True) -> list[int]:
    """What `verify` says, which must be what comes back."""
    result = verify(kept.history(base))
    said = [one.held.entry.number for one in result.checkpoints if one.reachable]
    history, came = kept.history(base), []
    for one in result.checkpoints:
        point = history.point(one.held.entry)
        for way in history.ways(point):
            try:
                if joined(history.pieces(way)) == data(kept.was[one.held.entry.number][1]):
                    came.append(one.held.entry.number)
                    break
            except CheckpointError:
                continue
    assert said == came
    return said


@pytest.mark.parametrize("seed", cases([*range(6)], [*range(6, 12)]))
def test_after_any_mishaps_nothing_wrong_is_taken_for_right(tmp_path, seed):
    """Learning, going back, losing and damaging at random: every way gives the recorded weights or an error, and
    verify knows which."""
    chance = random.Random(1000 + seed)
    kept = KeptHistory(tmp_path, 1000 + seed, chance.choice([1, 2]), full=chance.sample(range(1, 13), 2))
    for _ in range(12):
        back = kept.was[chance.choice(list(kept.was))][1]
        kept.write(weights=chance.choice([None, None, None, kept.weights, back]))
    mishaps = [_lose_checkpoint, _flip_delta, _flip_copy, _lose_base, _lose_table, kept.edit_model]
    for mishap in chance.sample(mishaps, chance.randint(0, 4)):
        mishap() if mishap == kept.edit_model else mishap(kept, chance)
    before = kept.everything()
    came = reachable(kept)
    history = kept.history()
    for held in history.held:
        for way in history.ways(history.point(held.entry)):
            try:
                got = joined(history.pieces(way))
            except CheckpointError:
                continue
            if got != data(kept.was[held.entry.number][1]):  # a copy that was edited, asked for without any delta
                assert not way.deltas
                assert held.entry.number not in came or len(history.ways(history.point(held.entry))) > 1
    assert kept.everything() == before


def _lose_checkpoint(kept, chance):
    shutil.rmtree(chance.choice([path for path, _ in entries(kept.checkpoints).whole]))


def _flip_delta(kept, chance):
    path = chance.choice([path for path, _ in entries(kept.checkpoints).whole]) / UNDO
    flip(path, chance.randrange(path.stat().st_size))


def _flip_copy(kept, chance):
    file = chance.choice([*kept.checkpoints.glob("*/model*.safetensors"), *kept.base.glob("*.safetensors")])
    flip(file, file.stat().st_size - 1 - chance.randrange(4000))


def _lose_base(kept, chance):
    shutil.rmtree(kept.base)


def _lose_table(kept, chance):
    (kept.model_dir / ".apollod/blocks.bin").unlink()


def test_whole_histories_verify(tmp_path):
    for seed in range(4):
        kept = KeptHistory(tmp_path / str(seed), seed, full=(2,) if seed % 2 else ()).many(5)
        before = kept.everything()
        result = verify(kept.history(base=seed > 1))
        assert result.ok, (seed, result)
        assert all(one.reachable for one in result.checkpoints)
        assert kept.everything() == before


def test_each_delta_is_unpacked_once(tmp_path, monkeypatch):
    kept = KeptHistory(tmp_path, 11, full=(2, 4)).many(6)
    unpacked, unpack = [], delta._unpack
    monkeypatch.setattr(
        delta, "_unpack", lambda packed, chunk, path: unpacked.append((path, chunk)) or unpack(packed, chunk, path)
    )
    assert verify(kept.history()).ok
    assert len(unpacked) == len(set(unpacked)) > 6


def test_a_flipped_byte_in_a_delta_cuts_one_way_only(tmp_path):
    kept = KeptHistory(tmp_path, 12).many(5)
    flip(kept.directory(kept.was[3][0]) / UNDO)
    before = kept.everything()
    assert list(problems(kept)) == [3]
    assert "undo.delta is damaged" in problems(kept)[3][0] or "neither what it was" in problems(kept)[3][0]
    assert reachable(kept) == [1, 2, 3, 4, 5]  # forwards from the base, backwards from the model directory
    assert reachable(kept, base=False) == [3, 4, 5]
    with pytest.raises(DeltaRefused):
        joined(weights_at(kept.history(base=False), 1))
    assert kept.everything() == before


def test_export_takes_the_next_way_where_one_is_damaged(tmp_path):
    kept = KeptHistory(tmp_path, 13).many(5)
    history = kept.history()
    nearest, other = history.ways(history.point(2))
    flip(nearest.deltas[0])
    done = export(history, history.point(2), tmp_path / "out", [Path("config.json")])
    assert (done.origin, len(done.failed)) == (other.copy.path, 1)
    assert (
        model.read(tmp_path / "out", kept.was[2][1].keys() - {"model.safetensors.index.json"}).items()
        <= kept.was[2][1].items()
    )
    flip(other.deltas[0])
    with pytest.raises(CheckpointError, match=r"cannot be had: from .*; from "):
        export(history, history.point(2), tmp_path / "no", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "checkpoints", "m", "out"]


def _delta_gone(kept):
    (kept.directory(kept.was[3][0]) / UNDO).unlink()
    return 3, "(apollod/undo.delta: No such file or directory)", [1, 2, 3, 4, 5], [3, 4, 5]


def _entry_damaged(kept):
    (kept.directory(kept.was[3][0]) / RECORD).write_text('{"schema_version": 2, "num')
    return None, "checkpoint.json is damaged", [1, 2, 4, 5], [4, 5]


def _middle_gone(kept):
    kept.drop(3)
    return None, "1 between are missing", [1, 2, 4, 5], [4, 5]


def _optimizer_cut(kept):
    state = kept.directory(kept.was[3][0]) / STATE
    state.write_bytes(state.read_bytes()[:-5])
    return 3, "optimizer.safetensors has", [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]


def _optimizer_header(kept):
    flip(kept.directory(kept.was[3][0]) / STATE, 6)
    return 3, "optimizer.safetensors is no safetensors file", [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]


def _model_shard_gone(kept):
    (kept.model_dir / "model-00002-of-00002.safetensors").unlink()
    return None, "model-00002-of-00002.safetensors cannot be read", [1, 2, 3, 4, 5], []


def _model_header_cut(kept):
    file = kept.model_dir / "model-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:20])
    return None, "a header of", [1, 2, 3, 4, 5], []


def _model_header_oversized(kept):
    file = kept.model_dir / "model-00001-of-00002.safetensors"
    file.write_bytes((1 << 40).to_bytes(8, "little") + file.read_bytes()[8:])
    return None, "allowed are 100000000", [1, 2, 3, 4, 5], []


def _model_edited(kept):
    kept.edit_model()
    return None, "holds weights of no checkpoint", [1, 2, 3, 4, 5], []


def _sync_interrupted(kept):
    (kept.model_dir / ".apollod/redo").write_bytes(b"APLREDO1" + bytes(5000))
    return None, "apollo-checkpoint recover", [1, 2, 3, 4, 5], []


DAMAGES = [
    _delta_gone, _entry_damaged, _middle_gone, _optimizer_cut, _optimizer_header, _model_shard_gone, _model_header_cut,
    _model_header_oversized, _model_edited, _sync_interrupted,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_damage_is_told_with_what_is_intact_and_nothing_is_overwritten(tmp_path, damage):
    kept = KeptHistory(tmp_path, 14).many(5)
    number, said, with_base, without = damage(kept)
    before = kept.everything()
    result = verify(kept.history())
    told = [one.problems for one in result.checkpoints] + [
        *result.copies.values(),
        result.broken.values(),
        result.notes,
    ]
    text = "\n".join(reason for reasons in told for reason in reasons)
    assert said in text
    assert [one.held.entry.number for one in result.checkpoints if one.problems] == ([number] if number else [])
    assert result.ok == (damage is _middle_gone)
    assert reachable(kept) == with_base
    assert reachable(kept, base=False) == without
    history = kept.history(base=False)
    for lost in {held.entry.number for held in history.held} - set(without):
        with pytest.raises(CheckpointError) as error:
            weights_at(history, lost)
        assert said in error.value.line()
        assert ("intact: step" if without else "restore from a copy elsewhere") in error.value.hint
    assert kept.everything() == before


def test_an_edited_record_is_found_by_the_weights_themselves(tmp_path):
    kept = KeptHistory(tmp_path, 15, full=(2,)).many(3)
    for number in (1, 2):
        path = kept.directory(kept.was[number][0])
        text = (path / RECORD).read_text()
        (path / RECORD).write_text(text.replace(kept.was[number][2], "0123456789abcdef"))
    result = problems(kept)
    assert "gives fingerprint" in result[1][0]
    assert "have fingerprint" in result[2][0]
    assert kept.was[2][2] in result[2][0]
    history = kept.history()
    for number in (1, 2):
        with pytest.raises(CheckpointError, match="came out, recorded is 0123456789abcdef"):
            export(history, history.point(number), tmp_path / "out", [])
    assert not (tmp_path / "out").exists()


def test_an_edited_base_is_told_and_the_other_way_is_taken(tmp_path):
    kept = KeptHistory(tmp_path, 16).many(3)
    file = sorted(kept.base.glob("*.safetensors"))[0]
    flip(file, file.stat().st_size - 2)
    result = verify(kept.history())
    assert "recorded is" in result.copies[str(kept.base)][0]
    assert [one.problems for one in result.checkpoints] == [[], [], []]


def test_directories_that_are_no_checkpoints_spoil_nothing(tmp_path):
    kept = KeptHistory(tmp_path, 17).many(3)
    (kept.checkpoints / "step-00000099.tmp-12/apollod").mkdir(parents=True)
    (kept.checkpoints / "notes").mkdir()
    (kept.checkpoints / "README").write_text("")
    old = kept.checkpoints / "step-00000000/apollod"
    old.mkdir(parents=True)
    (old / "checkpoint.json").write_text('{"schema_version": 1, "step": 0, "fingerprint": "0"}')
    shutil.copytree(kept.directory(kept.was[2][0]), kept.checkpoints / "z-copy")
    listing = entries(kept.checkpoints)
    assert [entry.number for _, entry in listing.whole] == [1, 2, 3]
    reasons = {broken.path.name: broken.reason for broken in listing.broken}
    assert sorted(reasons) == ["notes", "step-00000000", "z-copy"]
    assert "older apollod" in reasons["step-00000000"]
    assert "one is a copy" in reasons["z-copy"]
    check_all(kept, kept.history(), (1, 2, 3))


@pytest.mark.parametrize(
    "text", ['{"schema_version": 3}', "[]", "", "{}", "\xff", '{"schema_version": 2, "files": {"../x": 1}}']
)
def test_a_record_that_cannot_be_is_refused(tmp_path, text):
    kept = KeptHistory(tmp_path, 18).many(1)
    path = kept.directory(kept.was[1][0])
    (path / RECORD).write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"is damaged|has checkpoint schema 3"):
        read_entry(path)
    with pytest.raises(CheckpointError, match=r"is damaged|has checkpoint schema 3"):
        kept.history().at_step(kept.was[1][0])


def test_paths_out_of_the_directory_are_refused(tmp_path):
    kept = KeptHistory(tmp_path, 19).many(1)
    path = kept.directory(kept.was[1][0])
    text = (path / RECORD).read_text()
    for name in ("../x", "/etc/passwd"):
        (path / RECORD).write_text(text.replace('"apollod/undo.delta"', f'"{name}"'))
        with pytest.raises(CheckpointError, match="numbers or paths cannot be"):
            read_entry(path)


# --- export -------------------------------------------------------------------------------------------------------


def test_an_export_is_a_model_directory_that_is_a_checkpoint(tmp_path):
    kept = KeptHistory(tmp_path, 20, 3).many(3)
    history = kept.history()
    before = kept.everything()
    done = export(
        history,
        history.at_step(kept.was[2][0]),
        tmp_path / "out",
        [Path("config.json"), Path("model.safetensors.index.json")],
    )
    out = tmp_path / "out"
    assert model.read(out, kept.was[2][1]) == kept.was[2][1]
    assert (out / "config.json").read_text() == "{}"
    entry = read_entry(out)
    assert (entry.number, entry.step, entry.full, entry.fingerprint) == (0, kept.was[2][0], True, kept.was[2][2])
    assert directory_fingerprint(out) == done.fingerprint == entry.fingerprint
    assert (out / STATE).read_bytes() == (kept.directory(entry.step) / STATE).read_bytes()
    assert done.bytes == sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert load_file(out / STATE)["w.m"][0] == 2
    assert {name: path.read_bytes() for name, path in ((str(p), p) for p in map(Path, before))} == before


def test_weights_before_the_first_checkpoint_have_no_optimizer(tmp_path):
    kept = KeptHistory(tmp_path, 21).many(3)
    history = kept.history(base=False)
    done = export(history, history.at_step(0), tmp_path / "out", [Path("config.json")])
    assert (done.optimizer, (tmp_path / "out" / ENTRY).exists()) == ("these are weights before a checkpoint", False)
    assert done.fingerprint == kept.was[0][2]


def test_an_export_overwrites_nothing_and_leaves_nothing(tmp_path):
    kept = KeptHistory(tmp_path, 22).many(2)
    history = kept.history()
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "x").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    point = history.point(1)
    for out, said in (
        (taken, "exists already"),
        (tmp_path / "link", "exists already"),
        (kept.model_dir / "sub", "lies in"),
        (kept.checkpoints / "sub", "lies in"),
    ):
        before = kept.everything()
        with pytest.raises(CheckpointError, match=said):
            export(history, point, out, [])
        assert kept.everything() == before


def test_a_disk_that_fills_up_leaves_no_export_and_no_part_of_one(tmp_path, monkeypatch):
    kept = KeptHistory(tmp_path, 22).many(2)
    history, fsync, count = kept.history(), os.fsync, 0
    for fail_at in range(1, 20):
        count = 0

        def failing(fd, fail_at=fail_at):
            nonlocal count
            count += 1
            if count == fail_at:
                raise OSError(28, "No space left on device")
            fsync(fd)

        monkeypatch.setattr("os.fsync", failing)
        try:
            export(history, history.point(1), tmp_path / "new", [Path("config.json")])
        except CheckpointError as error:
            assert "No space left on device" in str(error)
            if not (tmp_path / "new").exists():
                assert not list(tmp_path.glob("new*"))
                continue
            shutil.rmtree(tmp_path / "new")  # the last flush, after the rename
            continue
        break
    assert 5 < fail_at < 20
    assert (
        model.read(tmp_path / "new", kept.was[1][1].keys() - {"model.safetensors.index.json"}).items()
        <= kept.was[1][1].items()
    )


def test_an_export_that_does_not_fit_is_not_begun(tmp_path, monkeypatch):
    kept = KeptHistory(tmp_path, 23).many(2)
    history = kept.history()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(CheckpointError, match="has 1000 free"):
        export(history, history.point(1), tmp_path / "out", [])
    assert not list(tmp_path.glob("out*"))


def test_a_sync_at_work_is_waited_for_by_nobody_here(tmp_path):
    kept = KeptHistory(tmp_path, 24).many(2)
    history = kept.history(base=False)
    with WeightsLock(kept.model_dir):
        with pytest.raises(WeightsLocked):
            joined(weights_at(history, 1))
        assert "are in use by" in kept.history().model.problem
        assert joined(weights_at(History.read(kept.checkpoints, kept.model_dir, None, locked=True), 1)) == data(
            kept.was[1][1]
        )


def test_a_reader_makes_a_sync_wait(tmp_path):
    kept = KeptHistory(tmp_path, 25).many(2)
    coming = weights_at(kept.history(base=False), 1)
    next(coming)
    with pytest.raises(WeightsLocked):
        sync.sync(kept.model_dir, model.pieces(kept.weights), 99)
    coming.close()
    sync.sync(kept.model_dir, model.pieces(kept.weights), 99)
