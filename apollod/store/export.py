"""Exports a checkpoint to a directory of its own that any tool loads, with the optimizer beside the weights."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from apollod.errors import ApolloError, CheckpointError, WeightsLocked
from apollod.store.delta import Place, chunks
from apollod.store.disk import REAL, opened
from apollod.store.entry import ENTRY, STATE, write_entry
from apollod.store.fingerprint import Fingerprint
from apollod.store.history import History, Point, Way
from apollod.store.model_files import read_header
from apollod.store.pieces import Stream

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Exported:
    """Result of an export. `origin`: the copy of weights that it started from, `deltas`: number of deltas applied;
    `failed`: errors of paths tried before; `optimizer`: why the export has none, "" where it has one."""

    path: Path
    step: int
    fingerprint: str
    bytes: int
    origin: Path
    deltas: int
    failed: tuple[str, ...]
    optimizer: str


def export(
    history: History, point: Point, out: Path, others: Sequence[Path], progress: Progress = lambda count: None
) -> Exported:
    """Write the weights of a point, and its optimizer, to the new directory `out`, durably, whole or not at all.

    `others`: config, tokenizer and the like, relative to `history.template`. Where one path turns out to be damaged the
    next is taken. Raises CheckpointError; `out` is then as it was.
    """
    ways = history.ways(point)
    if not ways:
        raise history.unreachable(point)
    out = Path(os.path.abspath(out))
    temporary = out.with_name(f"{out.name}.tmp-{os.getpid()}")
    try:
        _check_target(history, out, others)
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        way, fingerprint, failed = _first_good(history, point, ways, temporary, progress)
        _copy_others(history.template, temporary, others)
        missing = _put_entry(point, fingerprint, temporary)
        written = _flush(temporary)
        os.rename(temporary, out)
        REAL.fsync_dir(str(out.parent))
    except OSError as error:
        raise CheckpointError(f"{out} cannot be written ({error})", "make room or fix the permissions") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Exported(out, point.step, fingerprint, written, way.copy.path, len(way.deltas), failed, missing)


def _check_target(history: History, out: Path, others: Sequence[Path]) -> None:
    """Raise CheckpointError unless `out` is new, lies outside the model's directories, and has room."""
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out} exists already", "name a new directory; nothing is overwritten")
    for ours in (history.model_dir, history.checkpoints):
        if out.resolve().is_relative_to(ours.resolve()):
            raise CheckpointError(f"{out} lies in {ours}", "name a directory outside")
    there = next(parent for parent in out.parents if parent.exists())
    need = sum(file.bytes for file in history.files) + sum((history.template / name).stat().st_size for name in others)
    free = shutil.disk_usage(there).free
    if need > free:
        raise CheckpointError(
            f"the export takes {need} bytes, {there} has {free} free", "make room, or export to another disk"
        )


def _first_good(
    history: History, point: Point, ways: Sequence[Way], target: Path, progress: Progress
) -> tuple[Way, str, tuple[str, ...]]:
    """Return the first path that gives the recorded weights, their fingerprint, and the errors of the paths before
    it."""
    failed: list[str] = []
    for way in ways:
        try:
            found = _write_weights(history, way, target, progress)
        except WeightsLocked as error:
            if len(ways) == 1:
                raise
            failed.append(str(error))
            continue
        except ApolloError as error:
            failed.append(f"from {way.copy.path}: {error}")
            continue
        if found == (point.fingerprint or found):
            return way, found, tuple(failed)
        failed.append(f"from {way.copy.path}: fingerprint {found} came out, recorded is {point.fingerprint}")
    raise CheckpointError(
        f"the weights of {point} cannot be had: {'; '.join(failed)}",
        "nothing was written; `apollod checkpoint verify` says what is intact",
    )


def _write_weights(history: History, way: Way, target: Path, progress: Progress) -> str:
    """Write all weight files; return the fingerprint of the written weights."""
    stream, found = Stream(history.pieces(way)), Fingerprint()
    places: dict[str, list[Place]] = {file.name: [] for file in history.files}
    for place in chunks(history.files):
        places[place.tensor.file].append(place)
    for file in history.files:
        with (target / file.name).open("wb") as out:
            out.write(file.header)
            for place in places[file.name]:
                data = stream.take(file.name, place.start, place.size)
                out.write(data.data)
                found.add(place.tensor.name, place.offset, data)
                progress(place.size)
    return found.text()


def _copy_others(source: Path, target: Path, others: Sequence[Path]) -> None:
    for name in others:
        if name.parts[0] == ENTRY:
            continue  # of a model directory that was itself exported once
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)


def _put_entry(point: Point, fingerprint: str, target: Path) -> str:
    """Write optimizer and record if the point has them; return "" or the reason why not."""
    if point.held is None:
        return "these are weights before a checkpoint"
    if STATE in point.held.wrong or STATE not in point.held.entry.files:
        return point.held.wrong.get(STATE, f"{point.held.path} has no optimizer state")
    try:
        read_header(point.held.path, STATE)
    except ApolloError as error:
        return str(error)
    (target / ENTRY).mkdir()
    shutil.copyfile(point.held.path / STATE, target / STATE)
    files = {str(path.relative_to(target)): path.stat().st_size for path in sorted(target.rglob("*")) if path.is_file()}
    alone = structs.replace(
        point.held.entry,
        number=0,
        fingerprint=fingerprint,
        before_step=0,
        before_fingerprint="",
        full=True,
        files=files,
    )
    write_entry(target, alone)
    return ""


def _flush(target: Path) -> int:
    """Wait until everything is on disk; return the bytes of the files."""
    total = 0
    for directory, _, names in os.walk(target):
        for name in names:
            with opened(REAL, os.path.join(directory, name)) as fd:
                os.fsync(fd)
                total += os.fstat(fd).st_size
        REAL.fsync_dir(directory)
    return total
