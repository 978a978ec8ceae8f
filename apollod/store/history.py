"""The checkpoints of a model directory as one history: which weights can be restored, and by which path.

Weights are identified by their fingerprint. A delta joins the weights on its two sides; a path can start wherever a
copy of weights lies (the model directory, a full checkpoint, the base). So a missing checkpoint, damage or an edit by
hand breaks one path and not the others.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import Literal

from apollod.errors import ApolloError, CheckpointError, SyncError, WeightsLocked
from apollod.store.access import WeightsLock, interrupted
from apollod.store.block_table import BlockTable, identity, read_table
from apollod.store.delta import apply_deltas, read_delta
from apollod.store.disk import REAL, FileInfo
from apollod.store.entry import ENTRY, STATE, UNDO, Broken, Entry, entries
from apollod.store.fingerprint import directory_fingerprint
from apollod.store.model_files import WeightFile, layout_digest, read_files
from apollod.store.pieces import Piece, directory_pieces

Base = Literal["base"]
"""The weights before the first checkpoint."""


@dataclass(frozen=True)
class Held:
    """A checkpoint's directory. `wrong`: files that are missing or have another size, with the reason."""

    path: Path
    entry: Entry
    wrong: dict[str, str]

    @property
    def delta(self) -> Path | None:
        """The delta to the former content of the model directory, if the checkpoint has one."""
        return (
            self.path / UNDO
            if self.entry.before_fingerprint and UNDO in self.entry.files and UNDO not in self.wrong
            else None
        )

    @property
    def full(self) -> bool:
        """True if it has complete weights."""
        return self.entry.full and all(name.startswith(f"{ENTRY}/") for name in self.wrong)


@dataclass(frozen=True)
class Point:
    """Weights that can be requested. `held`: their checkpoint, with the optimizer; None for weights before a
    checkpoint. `fingerprint` "": not recorded; they are the kept base."""

    step: int
    fingerprint: str
    held: Held | None

    def __str__(self) -> str:
        return f"step {self.step} ({self.held.path.name})" if self.held else f"step {self.step}"


@dataclass(frozen=True)
class Copy:
    """A directory with complete weights."""

    kind: Literal["model", "full", "base"]
    path: Path
    fingerprint: str


@dataclass(frozen=True)
class Way:
    """A copy, and the deltas that lead from it to the requested weights; `bytes` of the deltas."""

    copy: Copy
    deltas: tuple[Path, ...]
    bytes: int


@dataclass(frozen=True)
class Model:
    """Content of the model directory. `step` -1 and `fingerprint` "": unknown; `problem`: why it cannot be used, "" if
    it can. `busy`: a sync holds its lock."""

    step: int = -1
    fingerprint: str = ""
    problem: str = ""
    seen: dict[str, FileInfo] = field(default_factory=dict)
    busy: bool = False


@dataclass(frozen=True)
class History:
    """All checkpoints, `held` in the order of writing. `uncommitted`: the newest, if the model directory is not at its
    step (yet). `locked`: the caller holds the weights lock of the model directory."""

    checkpoints: Path
    model_dir: Path
    base: Path | None
    held: list[Held]
    uncommitted: Held | None
    broken: list[Broken]
    model: Model
    locked: bool = False

    @staticmethod
    def read(checkpoints: Path, model_dir: Path, base: Path | None = None, locked: bool = False) -> "History":
        """Read the current state. Reads the weights only where the block table cannot identify them.

        Never fails because of the model directory: `model.problem` says why it cannot be used. Raises CheckpointError
        where `checkpoints` cannot be read.
        """
        try:
            files = read_files(model_dir)
            with nullcontext() if locked else WeightsLock(model_dir, shared=True):
                if interrupted(model_dir):
                    raise was_interrupted(model_dir)
                held, broken = _held(checkpoints)
                model, committed = _look(model_dir, files, held[-1].entry if held else None)
        except (ApolloError, OSError) as error:
            held, broken = _held(checkpoints)
            problem = error.line() if isinstance(error, ApolloError) else f"{model_dir} cannot be read ({error})"
            model = Model(problem=problem, busy=isinstance(error, WeightsLocked))
            committed = not (held and _is_before(model_dir, held[-1].entry))
        uncommitted = held.pop() if held and not committed else None
        kept = base if base is not None and base.is_dir() else None
        return History(checkpoints, model_dir, kept, held, uncommitted, broken, model, locked)

    @property
    def next_number(self) -> int:
        """Number of the next new checkpoint."""
        known = [held.entry.number for held in (*self.held, *([self.uncommitted] if self.uncommitted else []))]
        return max(known, default=0) + 1

    def point(self, what: int | Entry | Base) -> Point:
        """Find a checkpoint by its number or record, or the base. Raises CheckpointError where it is missing."""
        if what == "base":
            return self._base_point()
        number = what if isinstance(what, int) else what.number
        for held in self.held:
            if held.entry.number == number:
                return Point(held.entry.step, held.entry.fingerprint, held)
        raise CheckpointError(f"{self.checkpoints} holds no checkpoint with number {number}", self._there_are())

    def untrained(self, fingerprint: str) -> Point:
        """The weights before the first step, found by their fingerprint: the first checkpoint may be gone, or follow
        others."""
        return next((point for point in self.points() if point.fingerprint == fingerprint), None) or self.point("base")

    def at_step(self, step: int) -> Point:
        """The newest checkpoint of a step, else the weights of that step on the other side of a delta. Raises
        CheckpointError."""
        points = [point for point in self.points() if point.step == step]
        if points:
            return max(points, key=lambda point: (point.held is not None, point.held.entry.number if point.held else 0))
        if step == 0 and self.base is not None:
            return self._base_point()
        if self.uncommitted and self.uncommitted.entry.step == step:
            why = self.model.problem or f"the model directory is not at step {step}"
            raise CheckpointError(f"the checkpoint {self.uncommitted.path} is not committed: {why}", self._there_are())
        broken = next((broken for broken in self.broken if f"step-{step:08d}" in broken.path.name), None)
        if broken:
            raise CheckpointError(broken.reason, self._there_are())
        raise CheckpointError(f"there is no checkpoint of step {step} in {self.checkpoints}", self._there_are())

    def points(self) -> list[Point]:
        """Every checkpoint, and the weights before one where no other checkpoint has these; in the order of writing."""
        known = {held.entry.fingerprint for held in self.held}
        points = []
        for held in self.held:
            entry = held.entry
            if entry.before_fingerprint and entry.before_fingerprint not in known:
                points.append(Point(entry.before_step, entry.before_fingerprint, None))
                known.add(entry.before_fingerprint)
            points.append(Point(entry.step, entry.fingerprint, held))
        return points

    def copies(self) -> list[Copy]:
        """Copies of complete weights, according to their records."""
        found = [Copy("full", held.path, held.entry.fingerprint) for held in reversed(self.held) if held.full]
        if self.model.fingerprint and not self.model.problem:
            found.insert(0, Copy("model", self.model_dir, self.model.fingerprint))
        if self.base is not None:
            found.append(Copy("base", self.base, self._base_fingerprint()))
        return found

    def ways(self, point: Point) -> list[Way]:
        """Paths to the weights of a point, one from every copy that leads there, the shortest first."""
        if not point.fingerprint:
            return [Way(Copy("base", self.base, ""), (), 0)] if self.base else []
        reached: dict[str, tuple[tuple[Path, ...], int]] = {}
        heap: list[tuple[int, int, str, tuple[Path, ...]]] = [(0, 0, point.fingerprint, ())]
        while heap:
            size, length, here, deltas = heappop(heap)
            if here in reached:
                continue
            reached[here] = (deltas, size)
            for there, delta, more in self._joined.get(here, ()):
                if there not in reached:
                    heappush(heap, (size + more, length + 1, there, (delta, *deltas)))
        found = [Way(copy, *reached[copy.fingerprint]) for copy in self.copies() if copy.fingerprint in reached]
        return sorted(found, key=lambda way: way.bytes)

    def reachable(self) -> set[str]:
        """Fingerprints of all weights that some path leads to."""
        found: set[str] = set()
        ahead = [copy.fingerprint for copy in self.copies()]
        while ahead:
            if (here := ahead.pop()) not in found:
                found.add(here)
                ahead += [there for there, _, _ in self._joined.get(here, ())]
        return found

    def pieces(self, way: Way) -> Iterator[Piece]:
        """Yield the weights at the end of a path, in the layout of the model directory, a chunk at a time.

        The model directory is locked while it is read. Raises ApolloError where a copy or a delta is damaged or does
        not fit; the pieces before it must not be used then.
        """
        with self.lock(way.copy):
            self.check_unchanged(way.copy)
            yield from apply_deltas(way.deltas, self.files, directory_pieces(way.copy.path, self.files))

    def lock(self, copy: Copy) -> AbstractContextManager[object]:
        """Keep a sync from changing the copy while it is read."""
        return WeightsLock(self.model_dir, shared=True) if copy.kind == "model" and not self.locked else nullcontext()

    def check_unchanged(self, copy: Copy) -> None:
        """Raise CheckpointError where a sync has changed the copy since."""
        if copy.kind == "model" and any(
            REAL.stat(str(copy.path / name)) != info for name, info in self.model.seen.items()
        ):
            raise CheckpointError(f"{copy.path} has changed meanwhile", "a checkpoint was written; try again")

    @cached_property
    def template(self) -> Path:
        """A directory with the layout of the model: the model directory, or another copy if that is damaged."""
        return self._layout[0]

    @cached_property
    def files(self) -> tuple[WeightFile, ...]:
        """The layout of all weights that this history restores."""
        return self._layout[1]

    @cached_property
    def _layout(self) -> tuple[Path, tuple[WeightFile, ...]]:
        """The first copy that fits the deltas, else the first that can be read."""
        wanted, first, reasons = self._delta_layout(), None, []
        for path in [self.model_dir, *(copy.path for copy in self.copies() if copy.kind != "model")]:
            try:
                files = read_files(path)
            except ApolloError as error:
                reasons.append(str(error))
                continue
            if wanted in ("", layout_digest(files)):
                return path, files
            first = first or (path, files)
        if first is None:
            raise CheckpointError(
                f"there are no whole weights to start from: {'; '.join(reasons)}", "restore the model directory"
            )
        return first

    def _delta_layout(self) -> str:
        for held in reversed(self.held):
            if held.delta:
                try:
                    return read_delta(held.delta).head.layout
                except CheckpointError:
                    continue
        return ""

    @cached_property
    def _joined(self) -> dict[str, list[tuple[str, Path, int]]]:
        """Fingerprint -> (fingerprint on the other side of a delta, the delta, its bytes)."""
        joined: dict[str, list[tuple[str, Path, int]]] = {}
        for held in self.held:
            if held.delta:
                one, other, size = held.entry.before_fingerprint, held.entry.fingerprint, held.entry.files[UNDO]
                joined.setdefault(one, []).append((other, held.delta, size))
                joined.setdefault(other, []).append((one, held.delta, size))
        return joined

    def _base_fingerprint(self) -> str:
        """Fingerprint of the base as the first checkpoint records it; "" where that is gone."""
        first = self.held[0].entry if self.held else None
        return first.before_fingerprint if first and first.number == 1 else ""

    def _base_point(self) -> Point:
        if known := self._base_fingerprint():
            return Point(self.held[0].entry.before_step, known, None)
        if self.base is not None:
            return Point(0, "", None)
        raise CheckpointError(
            "the first checkpoint is gone, and the weights before it were not kept", self._there_are()
        )

    def _there_are(self) -> str:
        steps = ", ".join(str(step) for step in sorted({point.step for point in self.points()}))
        return f"there are steps {steps}" if steps else "no checkpoint is there"

    def unreachable(self, point: Point) -> CheckpointError:
        """Error that says why no path leads to a point, and which points are intact."""
        missing = self.gaps() or ["no copy of any weights is left"]
        reachable = self.reachable()
        intact = [str(other) for other in self.points() if other.fingerprint in reachable]
        hint = (
            f"nothing was written; intact: {', '.join(intact)}"
            if intact
            else "nothing was written; restore from a copy elsewhere"
        )
        return CheckpointError(f"no way leads to the weights of {point}: {'; '.join(missing)}", hint)

    def gaps(self) -> list[str]:
        """Reasons for everything that is missing, damaged or does not join."""
        found = [broken.reason for broken in self.broken]
        for held in self.held:
            found += [reason for name, reason in held.wrong.items() if name != STATE]
        for one, other in zip(self.held, self.held[1:], strict=False):
            if other.entry.before_fingerprint not in ("", one.entry.fingerprint):
                gone = other.entry.number - one.entry.number - 1
                why = f"{gone} between are missing" if gone else "the files were changed between, not by apollod"
                found.append(f"{other.path.name} does not follow {one.path.name}: {why}")
        if self.model.problem:
            found.append(self.model.problem)
        elif stray := self.stray():
            found.append(stray)
        return found

    def stray(self) -> str:
        """Message where the model directory holds weights that no checkpoint records, else ""."""
        if not self.held or self.model.fingerprint in {point.fingerprint for point in self.points()}:
            return ""
        return (
            f"{self.model_dir} holds weights of no checkpoint (fingerprint {self.model.fingerprint}): another process "
            "changed them"
        )


def was_interrupted(model_dir: Path) -> SyncError:
    """Error for a redo record that no process is working on."""
    return SyncError(
        f"a sync of {model_dir} was interrupted", f"run `apollo-checkpoint recover --model-dir {model_dir}` first"
    )


def _held(checkpoints: Path) -> tuple[list[Held], list[Broken]]:
    """Checkpoints with a readable record, by number, and the broken ones."""
    listing = entries(checkpoints)
    held = [Held(path, entry, {}) for path, entry in listing.whole]
    held += [Held(broken.path, broken.entry, broken.wrong) for broken in listing.broken if broken.entry]
    return sorted(held, key=lambda held: held.entry.number), [broken for broken in listing.broken if not broken.entry]


def _look(model_dir: Path, files: tuple[WeightFile, ...], newest: Entry | None) -> tuple[Model, bool]:
    """Content of the model directory, and True if the newest checkpoint is committed (the directory is at its step)."""
    seen = {file.name: info for file in files if (info := REAL.stat(str(model_dir / file.name)))}
    table = read_table(REAL, model_dir)
    step = table.step if table else -1
    if newest is None:
        return Model(step, "", "", seen), False
    before = (newest.before_step, newest.before_fingerprint)
    if table is not None and _is_current(table, files, seen):
        if step == newest.step:
            return Model(step, newest.fingerprint, "", seen), True
        if newest.before_fingerprint and step == newest.before_step:
            return Model(*before, "", seen), False
    found = directory_fingerprint(model_dir)
    if found == newest.fingerprint and not (before == (step, found)):
        return Model(newest.step, found, "", seen), True
    if found == newest.before_fingerprint:
        return Model(newest.before_step, found, "", seen), False
    return Model(-1, found, "", seen), True


def _is_before(model_dir: Path, newest: Entry) -> bool:
    """True if the table of an unreadable directory records the step before the newest checkpoint."""
    try:
        table = read_table(REAL, model_dir)
    except OSError:
        return False
    return table is not None and table.step == newest.before_step != newest.step


def _is_current(table: BlockTable, files: tuple[WeightFile, ...], seen: dict[str, FileInfo]) -> bool:
    """True if the files were not touched since the table was written."""
    return table.layout == layout_digest(files) and all(
        (blocks := table.files[name]).size == info.size and blocks.identity == identity(info)
        for name, info in seen.items()
    )
