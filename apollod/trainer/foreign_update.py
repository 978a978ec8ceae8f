"""Writes the tensors of an update by an outside trainer into the shared weights.

Everything is checked before the first write: names, shapes, dtypes, values, and that tied names have the same bits. A
tensor is rounded to the dtype of the model directory, to the nearest value and ties to even, also where the engine
holds a wider one. Tensors are read block by block, and straight into the weights where nothing is to be rounded; only
those that have to be compared, at most two at once, are in host memory as a whole.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from apollod.core.facts.updates import OBJECTIVE
from apollod.errors import ModelRefused, RecordRefused
from apollod.failpoints import failpoint
from apollod.model.checkpoint_names import check_tensor, known_names
from apollod.store.model_files import StoredTensor, read_header
from apollod.trainer.bind.live_weights import Weights, bits, finite, read_tensor
from apollod.trainer.bind.tensor_bytes import blocks, read_into
from apollod.trainer.learner import Learner
from apollod.wire import messages as m
from apollod.wire.updates import UpdateRecord, decode_update


class Payload:
    """The tensors of an update, as files. `targets`: by the sender's name, the name in the model directory."""

    def __init__(self, record: UpdateRecord, weights: Weights, tied: dict[str, str]) -> None:
        """Read all headers and check them. Raises RecordRefused."""
        self._weights = weights
        self._tensors: dict[str, tuple[Path, StoredTensor]] = {}
        self.targets: dict[str, str] = {}
        names = known_names(weights.source.tensors, tied)
        shapes = {name: one.shape for name, one in weights.source.tensors.items()}
        for digest in record.update.files:
            directory = _place(digest, record.where)
            try:
                file = read_header(directory, digest)
            except ModelRefused as error:
                raise RecordRefused(str(error), "send the update again") from error
            for tensor in file.tensors:
                if tensor.name in self._tensors:
                    raise RecordRefused(f"{tensor.name} was sent twice", "send each tensor of an update once")
                self.targets[tensor.name] = check_tensor(tensor.name, tensor.dtype, tensor.shape, names, shapes)
                self._tensors[tensor.name] = directory, tensor
        if not self._tensors:
            raise RecordRefused("it has no tensors", "send at least one before the update is committed")

    def check(self) -> None:
        """Check all values. Raises RecordRefused, with the tensor's name, for NaN and infinity, for tied names with
        different bits, and for other values of a tensor that the engine does not share."""
        first: dict[str, str] = {}
        for name, target in self.targets.items():
            if not all(map(finite, self._values(name))):
                raise RecordRefused(
                    f"{name} holds NaN or infinity, or values beyond {self._weights.source.tensors[target].dtype}",
                    "look at the outside trainer's loss; a tensor that was announced larger than it was sent ends in "
                    "NaN, too",
                )
            if target not in self._weights.views and not _same(self.read(name), self._weights.read(target)):
                raise RecordRefused(
                    f"{target} has new values, and the engine holds it in a form of its own",
                    "leave it out, or send it unchanged",
                )
            if (other := first.setdefault(target, name)) != name and not _same(self.read(name), self.read(other)):
                raise RecordRefused(
                    f"{name} and {other} are one tensor of this model and have different values", "send one of them"
                )

    def read(self, name: str) -> torch.Tensor:
        """A tensor in the dtype of the model directory, in host memory. Raises RecordRefused for a file that ended."""
        try:
            return read_tensor(*self._tensors[name]).to(self._dtype(name))
        except ModelRefused as error:
            raise RecordRefused(str(error), "send the update again") from error

    def _dtype(self, name: str) -> torch.dtype:
        """Dtype of a tensor in the model directory."""
        found: torch.dtype = getattr(torch, self._weights.source.tensors[self.targets[name]].dtype)
        return found

    def _values(self, name: str) -> Iterator[torch.Tensor]:
        """The same, as flat tensors one after another, each in the place of the one before."""
        stored = self._dtype(name)
        sent: torch.dtype = getattr(torch, self._tensors[name][1].dtype)
        try:
            for block in blocks(*self._tensors[name]):
                yield torch.frombuffer(block, dtype=sent).to(stored)
        except ModelRefused as error:
            raise RecordRefused(str(error), "send the update again") from error

    def write(self) -> None:
        """Write all tensors into the views."""
        written = set[str]()
        for name, target in self.targets.items():
            if target in self._weights.views and target not in written:
                self._write(name, self._weights.views[target].detach())
                written.add(target)
                failpoint("trainer.update.half-way")

    def _write(self, name: str, view: torch.Tensor) -> None:
        directory, stored = self._tensors[name]
        if not view.is_contiguous():
            view.copy_(self.read(name))
        elif view.is_cpu and view.dtype == getattr(torch, stored.dtype) == self._dtype(name):
            read_into(directory, stored, bits(view).numpy().data)
        else:
            flat, at = view.view(-1), 0
            for values in self._values(name):
                flat[at : at + len(values)].copy_(values)
                at += len(values)


def _place(digest: str, directories: list[str]) -> Path:
    for directory in directories:
        if (Path(directory) / digest).is_file():
            return Path(directory)
    raise RecordRefused(
        f"its tensors {digest} are not there ({', '.join(directories) or 'no directory has them'})",
        "put the file back, or start from a checkpoint after it",
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True for the same bits."""
    return one.shape == other.shape and torch.equal(bits(one), bits(other.cpu()))


def encoded_update(learner: Learner, example: str, canonical: bytes) -> m.Encoded:
    """Check an update as an example, or say why it cannot be written. Raises RecordRefused."""
    record = decode_update(canonical)
    Payload(record, learner.attached.weights, learner.attached.tied).check()
    return m.Encoded(example, 0, 0, 0, record.digest, objective=OBJECTIVE)


def write_update(learner: Learner, message: m.Step, before_write: Callable[[], None]) -> m.StepDone:
    """The step that writes an update. Raises RecordRefused before the first write; after any other error the weights
    may be half written."""
    started = time.perf_counter()
    (example,) = message.examples
    record = decode_update(example.record)
    if record.digest != example.digest:
        raise RecordRefused(f"update {record.update.number} is {record.digest}, not {example.digest}", "report this")
    weights = learner.attached.weights
    payload = Payload(record, weights, learner.attached.tied)
    before_write()
    with torch.no_grad():
        payload.write()
    if learner.attached.device.type == "cuda":
        torch.cuda.synchronize(learner.attached.device)  # the engine may read from here on
    if not record.update.moments:
        learner.forget()
    fingerprint = weights.fingerprint()
    if learner.undo is not None:
        learner.undo.restart(fingerprint)
    return m.StepDone(
        step=message.step, applied=True, loss=None, grad_norm=0.0, update_norm=0.0, tokens=0, targets=0,
        fingerprint=fingerprint, seconds=time.perf_counter() - started, skipped_zero=0, skipped_nonfinite=0,
        replay=message.replay, undoable=learner.undoable(),
    )  # fmt: skip
