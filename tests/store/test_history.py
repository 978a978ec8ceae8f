"""Histories of real directories: every step's weights come back to the bit, by whichever way is left, and damage is told."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from support import sharded_model as model

from apollod.errors import CheckpointError
from apollod.store import delta, sync
from apollod.store.entry import ENTRY, RECORD, SCHEMA_VERSION, STATE, UNDO, Entry, entries, read_entry, write_entry
from apollod.store.fingerprint import directory_fingerprint
from apollod.store.history import History, weights_at
from apollod.store.model_files import read_files
from apollod.store.pieces import directory_pieces


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(delta, "CHUNK_BYTES", 8192)


class Kept:
    """A model directory with checkpoints, written as the trainer does, and all weights that it ever held."""

    def __init__(self, root: Path, seed: int, shards=2, full=()):
        self.chance, self.root, self.full = random.Random(seed), root, full
        self.model_dir, self.checkpoints, self.base = root / "m", root / "checkpoints", root / "base/m"
        self.weights = model.model(self.chance, shards, (4, 20))
        model.write(self.model_dir, self.weights)
        shutil.copytree(self.model_dir, self.base)
        self.was = {0: (0, self.weights, directory_fingerprint(self.base))}
        """number -> (step, weights, fingerprint)"""
        self.step = 0

    def directory(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    def write(self, weights=None, step=None, commit=True) -> Entry:
        """Learn a few steps, then a checkpoint: the directory first, then the sync."""
        chance, before_step = self.chance, self.step
        weights = weights or self._learned()
        step = before_step + chance.randint(1, 5) if step is None else step
        number, path = max(self.was) + 1, self.directory(step)
        scratch = model.write(self.root / "scratch", weights)
        files = read_files(self.model_dir)
        temporary = path.with_name(f"{path.name}.tmp-1")
        (temporary / ENTRY).mkdir(parents=True)
        before = directory_fingerprint(self.model_dir)
        delta.write_delta(
            temporary / UNDO, files, directory_pieces(self.model_dir, files), model.pieces(weights), (before_step, step)
        )
        save_file({"w.m": np.full(8, number, np.float32)}, temporary / STATE)
        if number in self.full:
            model.write(temporary, weights)
        sizes = {str(p.relative_to(temporary)): p.stat().st_size for p in temporary.rglob("*") if p.is_file()}
        entry = Entry(
            SCHEMA_VERSION, number, step, directory_fingerprint(scratch), before_step, before, "m", number in self.full,
            {"name": "apollo", "rank": 4}, "2.13", 1, sizes,
        )  # fmt: skip
        write_entry(temporary, entry)
        temporary.rename(path)
        if commit:
            sync.sync(self.model_dir, model.pieces(weights), step)
            self.was[number] = (step, weights, entry.fingerprint)
            self.weights, self.step = weights, step
        return entry

    def _learned(self) -> dict[str, bytes]:
        share = self.chance.choice([0.05, 0.2, 0.9])
        while (weights := model.changed(self.chance, self.weights, share)) == self.weights:
            continue
        return weights

    def many(self, count: int) -> "Kept":
        for _ in range(count):
            self.write()
        return self

    def history(self, base=True) -> History:
        return History.read(self.checkpoints, self.model_dir, self.base if base else None)

    def drop(self, *numbers: int) -> None:
        for number in numbers:
            shutil.rmtree(self.directory(self.was[number][0]))

    def edit_model(self) -> dict[str, bytes]:
        """Somebody changes a file of the model directory."""
        name = sorted(name for name in self.weights if name.endswith(".safetensors"))[0]
        content = bytearray((self.model_dir / name).read_bytes())
        content[-3] ^= 0xFF
        (self.model_dir / name).write_bytes(content)
        return self.weights | {name: bytes(content)}

    def everything(self) -> dict[str, bytes]:
        """All bytes that are there."""
        return {str(p): p.read_bytes() for p in sorted(self.root.rglob("*")) if p.is_file() and p.name != "weights.lock"}


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


def check_all(kept: Kept, history: History, numbers) -> None:
    for number in numbers:
        assert joined(weights_at(history, number)) == data(kept.was[number][1]), f"other weights for checkpoint {number}"


# --- which weights come back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_every_checkpoint_comes_back_bit_for_bit(tmp_path, seed):
    chance = random.Random(seed)
    count = chance.randint(3, 9)
    full = tuple(chance.sample(range(1, count + 1), chance.choice([0, 1, 2])))
    kept = Kept(tmp_path, seed, chance.choice([1, 2, 3]), full).many(count)
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
    kept = Kept(tmp_path, 1).many(5)
    shutil.rmtree(kept.model_dir)
    history = kept.history()
    assert "holds neither" in history.model.problem
    assert (len(history.held), history.uncommitted) == (5, None)
    check_all(kept, history, range(1, 6))


def test_backwards_from_the_model_directory_where_no_base_was_kept(tmp_path):
    kept = Kept(tmp_path, 2).many(5)
    history = kept.history(base=False)
    check_all(kept, history, range(1, 6))
    assert joined(weights_at(history, "base")) == data(kept.was[0][1])
    way = history.ways(history.point("base"))
    assert [(w.copy.kind, len(w.deltas)) for w in way] == [("model", 5)]


def test_from_a_full_one_in_the_middle_in_both_directions(tmp_path):
    kept = Kept(tmp_path, 3, full=(3,)).many(6)
    kept.edit_model()
    history = kept.history(base=False)
    assert history.model.fingerprint not in {fingerprint for _, _, fingerprint in kept.was.values()}
    assert {w.copy.kind for n in range(1, 7) for w in history.ways(history.point(n))} == {"full"}
    check_all(kept, history, range(1, 7))


def test_the_nearest_copy_is_taken(tmp_path):
    kept = Kept(tmp_path, 4, full=(3,)).many(6)
    history = kept.history()
    taken = [history.ways(history.point(n))[0].copy.kind for n in (1, 3, 6)]
    assert taken[1:] == ["full", "model"]
    assert [len(history.ways(history.point(n))[0].deltas) for n in (3, 6)] == [0, 0]
    assert all(len(history.ways(history.point(n))) == 3 for n in range(1, 7))


def test_a_rollback_makes_a_step_occur_twice_and_the_newest_counts(tmp_path):
    kept = Kept(tmp_path, 5).many(4)
    back = kept.was[2]
    kept.write(weights=back[1], step=40)
    twice = model.changed(kept.chance, back[1], 0.3)
    kept.write(weights=twice, step=kept.was[4][0] + 100)
    second = kept.checkpoints / "step-again"
    shutil.move(kept.directory(40), second)
    entry = read_entry(second)
    write_entry(second, Entry(**{name: getattr(entry, name) for name in entry.__struct_fields__} | {"step": kept.was[2][0]}))
    history = kept.history()
    assert history.at_step(kept.was[2][0]).held.entry.number == 5
    check_all(kept, history, range(1, 7))
    kept.drop(3)  # the way over 5 and 6 is left: the rollback brought the same weights
    check_all(kept, kept.history(base=False), (1, 2, 4, 5, 6))


# --- what the model directory holds -------------------------------------------------------------------------------


def test_a_checkpoint_without_its_sync_is_no_part_of_the_history(tmp_path):
    kept = Kept(tmp_path, 6).many(3)
    entry = kept.write(commit=False)
    history = kept.history()
    assert (history.uncommitted.entry, len(history.held), history.next_number) == (entry, 3, 5)
    assert (history.model.step, history.model.fingerprint) == (kept.step, kept.was[3][2])
    with pytest.raises(CheckpointError, match="is not committed: the model directory is not at step"):
        history.at_step(entry.step)
    (kept.model_dir / ".apollod/blocks.bin").unlink()
    assert kept.history().uncommitted.entry == entry


def test_a_checkpoint_of_steps_that_changed_nothing_is_told_by_its_step(tmp_path):
    kept = Kept(tmp_path, 7).many(2)
    kept.write(weights=kept.weights)
    history = kept.history()
    assert (history.uncommitted, history.model.step) == (None, kept.step)
    entry = kept.write(weights=kept.weights, commit=False)
    assert kept.history().uncommitted.entry == entry
    check_all(kept, history, range(1, 4))


def test_without_a_block_table_the_weights_themselves_are_asked(tmp_path, monkeypatch):
    kept = Kept(tmp_path, 8).many(3)
    asked = []
    monkeypatch.setattr("apollod.store.history.directory_fingerprint", lambda path: asked.append(path) or directory_fingerprint(path))
    assert kept.history().model.step == kept.step
    assert asked == []
    (kept.model_dir / ".apollod/blocks.bin").unlink()
    history = kept.history()
    assert (history.model.step, history.uncommitted, asked) == (kept.step, None, [kept.model_dir])


def test_a_sync_by_hand_between_reading_and_use_is_noticed(tmp_path):
    kept = Kept(tmp_path, 9).many(3)
    history = kept.history(base=False)
    kept.write()
    with pytest.raises(CheckpointError, match="has changed meanwhile"):
        joined(weights_at(history, 3))


def test_nothing_at_all_is_an_empty_history(tmp_path):
    kept = Kept(tmp_path, 10)
    history = kept.history()
    assert (history.held, history.broken, history.next_number) == ([], [], 1)
    assert joined(weights_at(history, "base")) == data(kept.weights)
    with pytest.raises(CheckpointError, match="there is no checkpoint of step 3"):
        history.at_step(3)
