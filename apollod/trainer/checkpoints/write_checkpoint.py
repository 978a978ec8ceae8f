"""Writes a checkpoint: updates the model directory to the weights of a step, and adds an entry with the optimizer and
the delta to the weights before (docs/decisions/0012). For a replay: a whole model directory with the optimizer inside.

A directory is written under a temporary name, flushed, renamed. The sync of the model directory after that commits the
checkpoint; without it, its directory is removed again. Reading: restore.py.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from apollod.adapters.system.files import fsync_dir, fsync_file, put_in_place
from apollod.adapters.system.model_dir import files_below
from apollod.errors import ApolloError, CheckpointError, SyncError, WeightsDamaged
from apollod.failpoints import failpoint
from apollod.store.access import REDO, WeightsLock, check_writable
from apollod.store.apply import Recovered, recover_files
from apollod.store.block_table import BlockTable, current_table
from apollod.store.delta import old_pieces, write_delta
from apollod.store.disk import REAL
from apollod.store.entry import ENTRY, RECORD, SCHEMA_VERSION, STATE, UNDO, Entry, read_record, write_entry
from apollod.store.history import History
from apollod.store.model_files import WeightFile, read_files
from apollod.store.pieces import Piece
from apollod.store.sync import Synced, Unsettled, put_weights
from apollod.trainer.bind.live_fingerprint import FingerprintStream
from apollod.trainer.bind.live_weights import ModelDir
from apollod.trainer.checkpoints.weights_snapshot import Snapshot, host_parts
from apollod.trainer.optim.named_optimizer import STATE_VERSION
from apollod.wire.manifest import safetensors_header
from apollod.wire.messages import OptimizerSettings

WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack"}
"""Suffixes of weights in other formats in the source: stale after the first step, so not copied."""


@dataclass(frozen=True)
class Job:
    """A checkpoint to write. `model_dir`: to update (None: `path` becomes a whole model directory); `full`: write the
    weights into `path`, too; `source`: the directory that the engine's model was loaded from."""

    step: int
    path: Path
    model_dir: Path | None
    full: bool
    snapshot: Snapshot
    source: ModelDir
    settings: OptimizerSettings


class Written(msgspec.Struct, frozen=True):
    """A committed checkpoint; see `CheckpointCommitted`."""

    fingerprint: str = ""
    bytes: int = 0
    written_bytes: int = 0
    delta_bytes: int = 0
    changed_blocks: int = 0
    blocks: int = 0
    files: dict[str, str] = {}


def write(job: Job, written: Callable[[Written], None]) -> None:
    """Write a checkpoint; `written` is called once it is committed and every process reads its weights; only the redo
    record is left to remove then. Raises ApolloError: nothing is committed then, unless it is a SyncError with
    `committed`, or comes after `written`."""
    if damaged := job.snapshot.nonfinite():
        raise WeightsDamaged(damaged)
    try:
        if job.model_dir is None:
            written(_write_directory(job))
        else:
            _commit(job, job.model_dir, written)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {job.path} cannot be written ({error})",
            "make room or fix the permissions; the model directory and older checkpoints are as they were",
        ) from error


# --- the model directory and an entry of the history ---------------------------------------------------------------


@dataclass(frozen=True)
class _Before:
    """The content of the model directory. `fingerprint`: "" if unknown. `number`: of the new entry."""

    step: int
    fingerprint: str
    number: int


def _commit(job: Job, model_dir: Path, written: Callable[[Written], None]) -> None:
    check_writable(model_dir)
    with WeightsLock(model_dir) as lock:
        recovered = _recovered(model_dir)
        files = read_files(model_dir)
        before = _tidied(job, model_dir, recovered)
        table = current_table(REAL, model_dir, files)
        with _Temporary(job.path) as temporary:
            entry = _fill_entry(temporary, job, model_dir, files, before, table)
            failpoint("trainer.checkpoint.before-rename")
            put_in_place(temporary, job.path)
        failpoint("trainer.checkpoint.renamed")
        size = _directory_bytes(job.path, entry)
        unsettled = _put(job, model_dir, files, table)
        try:
            failpoint("trainer.checkpoint.committed")
            with lock.settling() as ours:
                written(_written(entry, size, unsettled.synced))
                if ours:
                    unsettled.settle()
        finally:
            unsettled.abandon()


def _written(entry: Entry, size: int, synced: Synced) -> Written:
    return Written(
        fingerprint=entry.fingerprint,
        bytes=size,
        written_bytes=synced.bytes_written,
        delta_bytes=entry.files[UNDO],
        changed_blocks=synced.changed_blocks,
        blocks=synced.blocks,
        files={file.name: file.how for file in synced.files},
    )


def _recovered(model_dir: Path) -> Recovered:
    """Finish an earlier sync. An error here belongs to that one: nothing of this checkpoint is committed."""
    try:
        return recover_files(REAL, model_dir)
    except SyncError as error:
        raise CheckpointError(str(error), error.hint) from error


def _put(job: Job, model_dir: Path, files: tuple[WeightFile, ...], table: BlockTable) -> Unsettled:
    """The sync that commits the checkpoint, not yet settled. Removes its directory if the commit certainly failed."""
    try:
        return put_weights(REAL, model_dir, job.snapshot.pieces(files), job.step, known=table)
    except Exception as error:
        if isinstance(error, SyncError) and error.committed:
            raise
        if not isinstance(error, ApolloError) and (model_dir / REDO).exists():
            raise SyncError(
                f"whether the checkpoint {job.path} is committed is not known ({error!r})",
                f"`apollo-checkpoint recover --model-dir {model_dir}` brings the old weights or the new ones",
                committed=True,
            ) from error
        _remove(job.path)
        raise


def _tidied(job: Job, model_dir: Path, recovered: Recovered) -> _Before:
    """Remove the remains of crashes: temporary directories, and an entry whose sync did not commit. Returns the
    resulting content."""
    job.path.parent.mkdir(parents=True, exist_ok=True)
    fsync_dir(job.path.parent.parent)
    for stray in job.path.parent.glob("*.tmp-*"):  # no other process writes here: we hold the directory's lock
        shutil.rmtree(stray)
    history = History.read(job.path.parent, model_dir, locked=True)
    if history.model.problem:
        raise CheckpointError(history.model.problem, "nothing was written")
    if history.uncommitted:
        _remove(history.uncommitted.path)
    if any(held.path == job.path for held in history.held):
        raise CheckpointError(
            f"{job.path} is a checkpoint already, of step {read_record(job.path).step}",
            "nothing was written; name another directory",
        )
    if job.path.exists():
        _remove(job.path)
    newest = history.held[-1].entry if history.held else None
    if newest and recovered.step is None and history.model.fingerprint not in ("", newest.fingerprint):
        raise CheckpointError(
            f"{model_dir} holds weights of fingerprint {history.model.fingerprint}, the newest checkpoint left "
            f"{newest.fingerprint}; "
            "nothing was written",
            f"to restore them, run `apollod checkpoint export DIR --step {newest.step}` and `apollo-checkpoint sync "
            f"--model-dir {model_dir} --from-dir DIR --step {newest.step} --accept-edits`; to keep the edit, start "
            "with another [state] dir",
        )
    step = history.model.step if history.model.step >= 0 else recovered.step or 0
    return _Before(step, history.model.fingerprint, history.next_number)


def _fill_entry(
    target: Path, job: Job, model_dir: Path, files: tuple[WeightFile, ...], before: _Before, table: BlockTable
) -> Entry:
    """Write the entry. The delta comes first: it reads the parts of the model directory that will change, and yields
    both fingerprints."""
    (target / ENTRY).mkdir(parents=True)
    old, new = FingerprintStream(files), FingerprintStream(files)
    write_delta(
        target / UNDO,
        files,
        old.watch(old_pieces(REAL, model_dir, files, table, job.snapshot.pieces(files))),
        new.watch(job.snapshot.pieces(files)),
        (before.step, job.step),
    )
    if before.fingerprint not in ("", old.text()):
        raise CheckpointError(
            f"{model_dir} holds weights of fingerprint {old.text()}, not {before.fingerprint}: another process writes "
            "there; nothing was written",
            "find out who, then run `apollo-checkpoint fingerprint`",
        )
    failpoint("trainer.checkpoint.weights-written")
    if job.full:
        _write_model(target, job, files, job.snapshot.pieces(files))
    return _seal(target, job, new.text(), before.number, (before.step, old.text()))


# --- a whole model directory ---------------------------------------------------------------------------------------


def _write_directory(job: Job) -> Written:
    """Write the directory for `apollod replay --out`; an older one there is replaced."""
    job.path.parent.mkdir(parents=True, exist_ok=True)
    for stray in job.path.parent.glob(f"{job.path.name}.tmp-*"):  # of processes that were killed while writing
        shutil.rmtree(stray)
    files = job.source.files
    with _Temporary(job.path) as temporary:
        (temporary / ENTRY).mkdir(parents=True)
        stream = FingerprintStream(files)
        _write_model(temporary, job, files, stream.watch(job.snapshot.pieces(files)))
        entry = _seal(temporary, job, stream.text(), 0, (0, ""))
        put_in_place(temporary, job.path)
    return Written(entry.fingerprint, _directory_bytes(job.path, entry))


def _write_model(target: Path, job: Job, files: Sequence[WeightFile], pieces: Iterator[Piece]) -> None:
    """Write the weight files, with the model's headers and these weights; then copy config, tokenizer and the like. No
    hard links to the model directory: a second link would make every later sync write whole files."""
    pieces = iter(pieces)
    for file in files:
        with (target / file.name).open("wb") as out:
            out.write(file.header)
            left = file.bytes - len(file.header)
            while left:
                piece = next(pieces)
                out.write(piece.data.data)
                left -= piece.data.nbytes
    for name in _other_files(job.source.path):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(job.source.path / name, target / name)


def _other_files(source: Path) -> Iterator[Path]:
    """Relative paths of config, tokenizer and the like: without weights, hidden files and our own."""
    return (path for path in files_below(source, WEIGHT_SUFFIXES) if Path(ENTRY) not in path.parents)


# --- both ---------------------------------------------------------------------------------------------------------


class _Temporary:
    """A temporary name beside `path` to fill and rename; removed in the end if it still exists."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.tmp-{os.getpid()}")

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _seal(target: Path, job: Job, fingerprint: str, number: int, before: tuple[int, str]) -> Entry:
    """Write optimizer state and record into `target`, and flush everything in it."""
    write_tensors(target / STATE, job.snapshot.state)
    entry = Entry(
        schema_version=SCHEMA_VERSION,
        number=number,
        step=job.step,
        fingerprint=fingerprint,
        before_step=before[0],
        before_fingerprint=before[1],
        model=_model_name(job.source.path),
        full=job.full or job.model_dir is None,
        optimizer=msgspec.to_builtins(job.settings),
        torch=str(torch.__version__),
        state_version=STATE_VERSION,
        files={
            str(file.relative_to(target)): file.stat().st_size for file in sorted(target.rglob("*")) if file.is_file()
        },
    )
    write_entry(target, entry)
    for item in target.rglob("*"):
        (fsync_dir if item.is_dir() else fsync_file)(item)
    fsync_dir(target)
    return entry


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file (github.com/huggingface/safetensors, "Format"). Wide elements come first, so that all
    are aligned. `safetensors.torch.save_file` would hold all of them a second time."""
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header = safetensors_header(
        (one, str(tensors[one].dtype).removeprefix("torch."), tensors[one].shape) for one in names
    )
    with path.open("wb") as file:
        file.write(header)
        for name in names:
            for part in host_parts(tensors[name], tensors[name].dtype):
                file.write(part.data)


def _model_name(source: Path) -> str:
    """Name of the base model; a checkpoint used as the source passes on its own."""
    return read_record(source).model if (source / RECORD).is_file() else source.resolve().name


def _directory_bytes(path: Path, entry: Entry) -> int:
    return sum(entry.files.values()) + (path / RECORD).stat().st_size


def _remove(path: Path) -> None:
    """Remove a checkpoint, its record first, so that a crash leaves no valid entry. Readers skip remains, or find them
    uncommitted."""
    with suppress(OSError):
        (path / RECORD).unlink(missing_ok=True)
        fsync_dir(path / ENTRY)
        shutil.rmtree(path)
        fsync_dir(path.parent)
