"""Restores weights and optimizer to a checkpoint, or to the weights before the first step.

`prepare` finds the weights and verifies every byte of them; only then `Restoring.into` writes the engine's memory.
Weights are never held as a whole: they are read twice, first to verify them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file

from apollod.errors import ApolloError, CheckpointError
from apollod.failpoints import failpoint
from apollod.store.access import REDO
from apollod.store.entry import STATE, Entry, read_entry
from apollod.store.history import History
from apollod.store.model_files import WeightFile
from apollod.store.pieces import Piece, directory_pieces
from apollod.store.sync import recover
from apollod.trainer.bind.live_fingerprint import fingerprint_of
from apollod.trainer.bind.live_weights import Weights
from apollod.trainer.optim.named_optimizer import STATE_VERSION, NamedOptimizer
from apollod.trainer.optim.optimizers import misfit
from apollod.wire.messages import OptimizerSettings, Restore

RENAMED = {"name": "optimizer"}
"""New names of settings in checkpoints of the first releases."""

UNRECORDED = {"limiter_rule": "growth", "loss_min": 0.0}
"""Settings that older checkpoints lack, where their behaviour was not today's default."""


@dataclass(frozen=True)
class _Source:
    """A source of the weights, in the layout of `files`."""

    name: str
    files: Sequence[WeightFile]
    pieces: Callable[[], Iterator[Piece]]


@dataclass(frozen=True)
class Restoring:
    """A restore that can be carried out. `source`: None if memory holds the weights. `state`: checkpoint of the
    optimizer, None for a fresh one. `same_parameters`: the state is of the parameters that are trained now."""

    fingerprint: str
    source: _Source | None
    state: Path | None
    same_parameters: bool

    def into(self, weights: Weights, optimizer: NamedOptimizer) -> str:
        """Write optimizer state and weights; returns the fingerprint in memory. Raises CheckpointError."""
        if self.state is not None:
            _load_state(self.state, optimizer, self.same_parameters)
        if self.source is not None:
            failpoint("trainer.restore.half-way")
            try:
                weights.write_pieces(self.source.files, self.source.pieces())
            except OSError as error:
                raise CheckpointError(
                    f"{self.source.name} cannot be read ({error})", "restore again: memory is half written"
                ) from error
            failpoint("trainer.restore.written")
        found = weights.fingerprint()
        if found != self.fingerprint:
            hint = "restore again: the files changed meanwhile" if self.source else "restore the weights, too"
            raise CheckpointError(f"memory has fingerprint {found}, expected is {self.fingerprint}", hint)
        return found


def prepare(request: Restore, weights: Weights, settings: OptimizerSettings) -> Restoring:
    """Check everything that can be checked before a write. Raises ApolloError for files of another model or rank,
    damaged files, or a fingerprint other than `request.fingerprint`."""
    path, entry = (Path(request.path), read_entry(Path(request.path))) if request.path else (None, None)
    expected, same = request.fingerprint, True
    if path and entry:
        same = _check_state(path, entry, settings)
        expected = expected or entry.fingerprint
        if entry.fingerprint != expected:
            raise CheckpointError(
                f"{path} has fingerprint {entry.fingerprint}, expected is {expected}", "use another checkpoint"
            )
    if not request.weights and expected:
        return Restoring(expected, None, path, same)
    source, found = _find(request, entry, weights, expected)
    return Restoring(found, source if request.weights else None, path, same)


# --- where the weights are ----------------------------------------------------------------------------------------


def _find(request: Restore, entry: Entry | None, weights: Weights, expected: str) -> tuple[_Source, str]:
    """The first source whose bytes have the fingerprint, and that fingerprint; any one will do if none is expected."""
    model_dir = Path(request.model_dir)
    if (model_dir / REDO).exists():
        recover(model_dir)
    reasons: list[str] = []
    for source in _sources(request, entry, weights, expected, reasons):
        try:
            _check_tensors(source, weights)
            found = fingerprint_of(source.files, source.pieces())
        except ApolloError as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{source.name} cannot be read ({error})")
        else:
            if found == (expected or found):
                return source, found
            reasons.append(f"{source.name} has fingerprint {found}")
    what = f"the weights of {request.path}" if request.path else "the weights before the first step"
    raise CheckpointError(
        f"{what} (fingerprint {expected or 'not known'}) were not found: {'; '.join(dict.fromkeys(reasons))}",
        "memory is as it was; use another checkpoint",
    )


def _sources(
    request: Restore, entry: Entry | None, weights: Weights, expected: str, reasons: list[str]
) -> Iterator[_Source]:
    """Candidate sources, the nearest first. Directories that the history skipped come last, since its records may be
    wrong."""
    model_dir, base = Path(request.model_dir), Path(request.base) if request.base else None
    tried: set[Path] = set()
    if request.checkpoints:
        history = History.read(Path(request.checkpoints), model_dir, base)
        try:
            point = history.point(entry) if entry is not None else history.untrained(expected)
            ways = history.ways(point)
            if not ways:
                reasons.append(str(history.unreachable(point)))
        except CheckpointError as error:
            ways = []
            reasons.append(str(error))
        for way in ways:
            tried |= {way.copy.path} if not way.deltas else set()
            name = f"{way.copy.path}, {len(way.deltas)} deltas away," if way.deltas else str(way.copy.path)
            yield _Source(name, history.files, lambda way=way: history.pieces(way))  # type: ignore[misc]
    full = Path(request.path) if entry and entry.full else None
    directories = [model_dir, full] if entry else [base, model_dir]
    files = weights.source.files
    for directory in directories:
        if directory and directory not in tried:
            yield _Source(str(directory), files, lambda where=directory: directory_pieces(where, files))  # type: ignore[misc]


# --- checks -------------------------------------------------------------------------------------------------------


def _check_state(where: Path, entry: Entry, settings: OptimizerSettings) -> bool:
    """True if the state is of the parameters that are trained now. Raises CheckpointError unless these settings can
    continue from it."""
    if entry.state_version != STATE_VERSION:
        raise CheckpointError(
            f"{where} has optimizer state of version {entry.state_version}, known is {STATE_VERSION}",
            "use the apollod that wrote it, or another checkpoint",
        )
    try:
        named = UNRECORDED | {RENAMED.get(name, name): value for name, value in entry.optimizer.items()}
        saved = msgspec.convert(named, OptimizerSettings)
    except msgspec.ValidationError as error:
        raise CheckpointError(
            f"{where} has settings of the optimizer that are none ({error})", "use another checkpoint"
        ) from error
    if wrong := misfit(saved, settings):
        name, then, now = wrong
        raise CheckpointError(
            f"{where} was trained with {name} = {then!r}, the configuration says {now!r}",
            f"set [trainer] {name} back, or use another checkpoint",
        )
    return (saved.layers, saved.freeze) == (settings.layers, settings.freeze)


def _check_tensors(source: _Source, weights: Weights) -> None:
    """Raise CheckpointError unless both store the same names, shapes and dtypes."""
    theirs = {tensor.name: tensor for file in source.files for tensor in file.tensors}
    for name in [*weights.source.tensors, *theirs]:
        one, other = weights.source.tensors.get(name), theirs.get(name)
        here = f"{one.dtype} {list(one.shape)}" if one else "missing"
        there = f"{other.dtype} {list(other.shape)}" if other else "missing"
        if here != there:
            raise CheckpointError(
                f"{name} is {there} in {source.name} and {here} in {weights.source.path}",
                "use a checkpoint of this model",
            )


def _load_state(where: Path, optimizer: NamedOptimizer, same_parameters: bool) -> None:
    """Load the optimizer state. With another selection of parameters, only those trained in both keep it; the others
    start fresh."""
    try:
        optimizer.load_state_tensors(load_file(where / STATE), strict=same_parameters)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{where / STATE} cannot be read ({error})", "use another checkpoint") from error
    except ApolloError as error:
        raise CheckpointError(f"{where / STATE}: {error}", error.hint) from error
