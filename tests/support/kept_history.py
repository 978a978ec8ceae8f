"""A model directory with real checkpoints, and all weights that it ever held, for tests of what comes back."""

import random
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from support import sharded_model as model

from apollod.store import delta, sync
from apollod.store.block_table import current_table
from apollod.store.disk import REAL
from apollod.store.entry import ENTRY, SCHEMA_VERSION, STATE, UNDO, Entry, write_entry
from apollod.store.fingerprint import Fingerprint, directory_fingerprint
from apollod.store.history import Base, History
from apollod.store.model_files import read_files
from apollod.store.pieces import Piece, Stream


class KeptHistory:
    """A model directory with checkpoints, written as the trainer does, and all weights that it ever held."""

    def __init__(self, root: Path, seed: int, shards: int = 2, full: Collection[int] = (), source: Path | None = None):
        """`source`: a model directory to copy, instead of a small random one."""
        self.chance, self.root, self.full = random.Random(seed), root, full
        self.model_dir, self.checkpoints, self.base = root / "m", root / "checkpoints", root / "base/m"
        self.weights = {} if source else model.model(self.chance, shards, (4, 20))
        if source:
            shutil.copytree(source, self.model_dir)
        else:
            model.write(self.model_dir, self.weights)
        shutil.copytree(self.model_dir, self.base)
        self.was = {0: (0, self.weights, directory_fingerprint(self.base))}
        """number -> (step, weights, fingerprint)"""
        self.step = 0

    def directory(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    def write(self, weights: dict[str, bytes] | None = None, step: int | None = None, commit: bool = True) -> Entry:
        """Learn a few steps, then a checkpoint."""
        weights = weights or self._learned()
        step = self.step + self.chance.randint(1, 5) if step is None else step
        entry = self.write_pieces(
            lambda: model.pieces(weights), step, weights if max(self.was) + 1 in self.full else {}, commit
        )
        if commit:
            self.was[entry.number] = (step, weights, entry.fingerprint)
            self.weights = weights
        return entry

    def write_pieces(
        self, pieces: Callable[[], Iterator[Piece]], step: int, full: dict[str, bytes], commit: bool = True
    ) -> Entry:
        """As the trainer does: the directory first, then the sync. `full`: weights that the directory holds, too."""
        number, path, files = max(self.was) + 1, self.directory(step), read_files(self.model_dir)
        temporary = path.with_name(f"{path.name}.tmp-1")
        (temporary / ENTRY).mkdir(parents=True)
        before = directory_fingerprint(self.model_dir)
        table = current_table(REAL, self.model_dir, files)
        old = delta.old_pieces(REAL, self.model_dir, files, table, pieces())
        delta.write_delta(temporary / UNDO, files, old, pieces(), (self.step, step))
        save_file({"w.m": np.full(8, number, np.float32)}, temporary / STATE)
        if full:
            model.write(temporary, full)
        sizes = {str(p.relative_to(temporary)): p.stat().st_size for p in temporary.rglob("*") if p.is_file()}
        entry = Entry(
            SCHEMA_VERSION, number, step, _fingerprint(files, pieces()), self.step, before, "m", bool(full),
            {"name": "apollo", "rank": 4}, "2.13", 1, sizes,
        )  # fmt: skip
        write_entry(temporary, entry)
        temporary.rename(path)
        if commit:
            sync.sync(self.model_dir, pieces(), step)
            self.step = step
        return entry

    def _learned(self) -> dict[str, bytes]:
        share = self.chance.choice([0.05, 0.2, 0.9])
        while (weights := model.changed(self.chance, self.weights, share)) == self.weights:
            continue
        return weights

    def many(self, count: int) -> "KeptHistory":
        for _ in range(count):
            self.write()
        return self

    def history(self, base=True) -> History:
        return History.read(self.checkpoints, self.model_dir, self.base if base else None)

    def drop(self, *numbers: int) -> None:
        for number in numbers:
            shutil.rmtree(self.directory(self.was[number][0]))

    def drop_uncommitted(self) -> None:
        """As a recovery does."""
        shutil.rmtree(self.history().uncommitted.path)

    def edit_model(self) -> dict[str, bytes]:
        """Somebody changes a file of the model directory."""
        name = sorted(name for name in self.weights if name.endswith(".safetensors"))[0]
        content = bytearray((self.model_dir / name).read_bytes())
        content[-3] ^= 0xFF
        (self.model_dir / name).write_bytes(content)
        return self.weights | {name: bytes(content)}

    def everything(self) -> dict[str, bytes]:
        """All bytes that are there."""
        return {
            str(p): p.read_bytes() for p in sorted(self.root.rglob("*")) if p.is_file() and p.name != "weights.lock"
        }


def _fingerprint(files, pieces) -> str:
    found, stream = Fingerprint(), Stream(pieces)
    for place in delta.chunks(files):
        found.add(place.tensor.name, place.offset, stream.take(place.tensor.file, place.start, place.size))
    return found.text()


def weights_at(history: History, what: int | Entry | Base) -> Iterator[Piece]:
    """The weights of a checkpoint (by its number or record) or of the base, from the nearest copy, chunk by chunk.

    Raises CheckpointError, before the first piece, where no way leads there; while they come also where a delta or a
    copy is damaged.
    """
    point = history.point(what)
    ways = history.ways(point)
    if not ways:
        raise history.unreachable(point)
    return history.pieces(ways[0])
