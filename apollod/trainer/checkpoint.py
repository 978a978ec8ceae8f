"""Checkpoints: a Hugging Face model directory with the weights of a step, and the optimizer beside them.

The weight files repeat those of the source directory to the byte, header and all, except for the weights themselves;
`apollod/` inside holds what only we read. Written beside its place, flushed, renamed: a directory with a checkpoint's
name is a whole checkpoint. Nothing is written into the engine's memory before everything on disk has been checked.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from apollod.adapters.files import fsync_dir, fsync_file, put_in_place
from apollod.adapters.model_dir import files_below
from apollod.errors import ApolloError, CheckpointError
from apollod.failpoints import failpoint
from apollod.trainer import fingerprint
from apollod.trainer.model_dir import ModelDir, WeightFile
from apollod.trainer.named_optimizer import STATE_VERSION, NamedOptimizer
from apollod.trainer.optimizers import misfit
from apollod.trainer.weights import Weights
from apollod.wire.messages import OptimizerSettings, Restore

SCHEMA_VERSION = 1
OURS = "apollod"
RECORD = f"{OURS}/checkpoint.json"
STATE = f"{OURS}/optimizer.safetensors"

WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack"}
"""Files of the source that hold weights in another form: stale as soon as a step is done, so not copied."""


class Checkpoint(msgspec.Struct, frozen=True):
    """checkpoint.json. `files`: bytes of every other file, by its path in the directory; `state_version`: of what the
    optimizer's state means."""

    schema_version: int
    step: int
    fingerprint: str
    model: str
    optimizer: OptimizerSettings
    torch: str
    files: dict[str, int]
    state_version: int = 1


@dataclass(frozen=True)
class Written:
    """A committed checkpoint. `bytes`: of all its files."""

    fingerprint: str
    bytes: int


def write(path: Path, step: int, weights: Weights, optimizer: NamedOptimizer, settings: OptimizerSettings) -> Written:
    """Write weights and optimizer state to the directory `path`; an older one there is replaced.

    One tensor at a time is copied (none on CPU, unless `cast`). Raises CheckpointError; `path` is then as it was.
    """
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for stray in path.parent.iterdir():  # of processes that were killed while writing
            if stray.name.startswith(f"{path.name}.tmp-"):
                shutil.rmtree(stray)
        written = _fill(temporary, step, weights, optimizer, settings)
        failpoint("trainer.checkpoint.before-rename")
        put_in_place(temporary, path)
        failpoint("trainer.checkpoint.renamed")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"the checkpoint {path} cannot be written ({error})", "make room or fix the permissions"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return written


def read(path: Path) -> Checkpoint:
    """The record of a checkpoint whose files all have their sizes; raises CheckpointError."""
    try:
        record = msgspec.json.decode((path / RECORD).read_bytes(), type=Checkpoint)
        if record.schema_version != SCHEMA_VERSION:
            raise CheckpointError(
                f"{path} has checkpoint schema {record.schema_version}, known is {SCHEMA_VERSION}", "use a newer apollod"
            )
        for name, size in record.files.items():
            found = (path / name).stat().st_size
            if found != size:
                raise CheckpointError(f"{path / name} has {found} bytes, recorded are {size}", "use another checkpoint")
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} is not whole ({error})", "use another checkpoint") from error
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{path / RECORD} is damaged ({error})", "use another checkpoint") from error
    return record


def restore(request: Restore, weights: Weights, optimizer: NamedOptimizer, settings: OptimizerSettings) -> str:
    """Bring weights and optimizer to a checkpoint, or the weights to the base model. Returns the fingerprint in memory.

    For the base model (`request.path` empty) `optimizer` has to be a fresh one. Raises CheckpointError where the files
    are of another model or rank, damaged, or not what `request.fingerprint` says; memory is then as it was.
    """
    where = Path(request.path or request.model_dir)
    expected = request.fingerprint
    if request.path:
        record = read(where)
        _check_state(where, record, settings)
        expected = expected or record.fingerprint
    origin = ModelDir.open(where)
    _check_tensors(weights.source, origin)
    on_disk = _file_fingerprint(origin)
    expected = expected or on_disk
    if on_disk != expected:
        raise CheckpointError(f"{where} has fingerprint {on_disk}, expected is {expected}", "use another checkpoint")
    if request.path:
        saved = record.optimizer
        _load_state(where, optimizer, (saved.layers, saved.freeze) == (settings.layers, settings.freeze))
    if request.weights:
        failpoint("trainer.restore.half-way")
        weights.write_all(origin)
        failpoint("trainer.restore.written")
    found = weights.fingerprint()
    if found != expected:
        raise CheckpointError(f"memory has fingerprint {found}, {where} has {expected}", "restore the weights too")
    return found


# --- writing ------------------------------------------------------------------------------------------------------


def _fill(target: Path, step: int, weights: Weights, optimizer: NamedOptimizer, settings: OptimizerSettings) -> Written:
    """Write all files and flush them and their directories."""
    source = weights.source
    (target / OURS).mkdir(parents=True)
    total = sum(_write_weights(weights, file, target / file.name) for file in source.files)
    failpoint("trainer.checkpoint.weights-written")
    for name in _other_files(source.path):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.path / name, target / name)
    save_file({name: tensor.cpu() for name, tensor in optimizer.state_tensors().items()}, target / STATE)
    record = Checkpoint(
        schema_version=SCHEMA_VERSION,
        step=step,
        fingerprint=fingerprint.format(total % (1 << 64)),
        model=_model_name(source.path),
        optimizer=settings,
        torch=str(torch.__version__),
        state_version=STATE_VERSION,
        files={str(file.relative_to(target)): file.stat().st_size for file in sorted(target.rglob("*")) if file.is_file()},
    )
    (target / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    for item in target.rglob("*"):
        (fsync_dir if item.is_dir() else fsync_file)(item)
    fsync_dir(target)
    return Written(record.fingerprint, sum(record.files.values()) + (target / RECORD).stat().st_size)


def _write_weights(weights: Weights, file: WeightFile, target: Path) -> int:
    """Write one safetensors file; the fingerprint of what was written (not reduced)."""
    total = 0
    with target.open("wb") as out:
        out.write(file.header)
        for stored in file.tensors:
            data = weights.read(stored.name).detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
            out.write(data.data)
            total += fingerprint.combine(stored.name, fingerprint.bytes_fingerprint(data))
    return total


def _other_files(source: Path) -> Iterator[Path]:
    """Relative paths of config, tokenizer and the like; no weights, nothing hidden, nothing of ours."""
    return (path for path in files_below(source, WEIGHT_SUFFIXES) if Path(OURS) not in path.parents)


def _model_name(source: Path) -> str:
    """Name of the base model: a checkpoint that serves as a source passes it on."""
    return read(source).model if (source / RECORD).is_file() else source.resolve().name


# --- reading ------------------------------------------------------------------------------------------------------


def _check_state(where: Path, record: Checkpoint, settings: OptimizerSettings) -> None:
    """Raise CheckpointError unless these settings can go on with the optimizer state."""
    if record.state_version != STATE_VERSION:
        raise CheckpointError(
            f"{where} has optimizer state of version {record.state_version}, known is {STATE_VERSION}",
            "use the apollod that wrote it, or another checkpoint",
        )
    if wrong := misfit(record.optimizer, settings):
        name, saved, here = wrong
        raise CheckpointError(
            f"{where} was trained with {name} = {saved!r}, the configuration says {here!r}",
            f"set [trainer] {name} back, or use another checkpoint",
        )


def _check_tensors(source: ModelDir, origin: ModelDir) -> None:
    """Raise CheckpointError unless both directories store the same names, shapes and dtypes."""
    for name in [*source.tensors, *origin.tensors]:
        one, other = source.tensors.get(name), origin.tensors.get(name)
        here = f"{one.dtype} {list(one.shape)}" if one else "missing"
        there = f"{other.dtype} {list(other.shape)}" if other else "missing"
        if here != there:
            raise CheckpointError(
                f"{name} is {there} in {origin.path} and {here} in {source.path}", "use a checkpoint of this model"
            )


def _file_fingerprint(origin: ModelDir) -> str:
    return fingerprint.format(sum(fingerprint.file_fingerprint(origin.path / file.name) for file in origin.files) % (1 << 64))


def _load_state(where: Path, optimizer: NamedOptimizer, same_parameters: bool) -> None:
    """With another selection of parameters: the state of those that are trained in both; the others begin without."""
    try:
        optimizer.load_state_tensors(load_file(where / STATE), strict=same_parameters)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{where / STATE} cannot be read ({error})", "use another checkpoint") from error
    except ApolloError as error:
        raise CheckpointError(f"{where / STATE}: {error}", error.hint) from error
