"""The checkpoint's tensors in their present state: those that the engine holds through views, the others from the
Hugging Face model directory on disk, whose tensors torch reads (headers: store/model_files.py)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from apollod.errors import ModelRefused, ShareRefused
from apollod.store.model_files import StoredTensor, WeightFile, read_files
from apollod.store.pieces import WINDOW_BYTES, Piece
from apollod.trainer.bind import live_fingerprint
from apollod.trainer.bind.live_fingerprint import DeviceFingerprint, Share, located

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class ModelDir:
    """The weights of a model directory; `tensors` by checkpoint name."""

    path: Path
    files: tuple[WeightFile, ...]
    tensors: dict[str, StoredTensor]

    @classmethod
    def open(cls, path: Path) -> "ModelDir":
        """Read all headers. Raises ModelRefused unless the directory holds whole safetensors files."""
        files = read_files(path)
        return cls(path, files, {tensor.name: tensor for file in files for tensor in file.tensors})

    def read(self, name: str) -> torch.Tensor:
        """A private copy of one tensor, see `read_tensor`."""
        return read_tensor(self.path, self.tensors[name])


def read_tensor(directory: Path, stored: StoredTensor) -> torch.Tensor:
    """A private copy of one tensor of a file in `directory`, CPU, in its stored dtype and shape. Raises ModelRefused
    for a file that ends inside it."""
    dtype: torch.dtype = getattr(torch, stored.dtype)
    if not stored.bytes:
        return torch.empty(stored.shape, dtype=dtype)
    buffer = bytearray(stored.bytes)
    with (directory / stored.file).open("rb") as file:
        file.seek(stored.start)
        if file.readinto(buffer) != stored.bytes:
            raise ModelRefused(f"{directory / stored.file} ends inside {stored.name}", "copy the model again")
    return torch.frombuffer(buffer, dtype=dtype).view(stored.shape)


class Weights:
    """All tensors that the model directory `source` stores, by their checkpoint names.

    `views`: those in the engine's memory, in its dtype. `tied`: alias -> name whose view it shares.
    """

    def __init__(self, source: ModelDir, views: dict[str, torch.Tensor], tied: dict[str, str]) -> None:
        aliases = {alias: views[name] for alias, name in tied.items() if alias in source.tensors and name in views}
        self.source = source
        self.views = {**aliases, **views}
        for name, view in self.views.items():
            _match(source, name, view)
        self._on_device: dict[bool, DeviceFingerprint] = {}
        fixed = [name for name in source.tensors if name not in self.views]
        self._fixed = live_fingerprint.model_fingerprint(
            (name, live_fingerprint.tensor_fingerprint(source.read(name))) for name in fixed
        )
        """Part of the fingerprint from tensors that never change; the files are read once."""

    def read(self, name: str) -> torch.Tensor:
        """The present tensor, in its stored dtype. Shares memory with the view if the dtypes are the same.

        A `cast` view holds values of the stored dtype in a wider one, so the conversion is exact.
        """
        if name not in self.views:
            return self.source.read(name)
        return self.views[name].to(getattr(torch, self.source.tensors[name].dtype))

    def write_all(self, origin: ModelDir) -> None:
        """Copy every tensor that has a view from the files of `origin` (same names and shapes) into memory."""
        for name, view in self.views.items():
            view.copy_(origin.read(name))

    def write_pieces(self, files: Sequence[WeightFile], pieces: Iterable[Piece]) -> None:
        """Write the data of all `files`, which store the same tensors as `source`, into the views; tensors without a
        view are skipped.

        Straight into memory, 16 MiB at a time; only for a view that is not contiguous, its whole tensor is assembled
        first.
        """
        window = torch.empty(WINDOW_BYTES, dtype=torch.uint8)
        assembled: torch.Tensor | None = None
        for tensor, offset, data in located(files, pieces):
            if tensor.name not in self.views:
                continue
            view, dtype = self.views[tensor.name].detach(), getattr(torch, tensor.dtype)
            target = view.view(-1) if view.is_contiguous() else None
            if target is None and offset == 0:
                assembled = torch.empty(tensor.shape, dtype=dtype)
            for at in range(0, data.size, WINDOW_BYTES):
                part = data[at : at + WINDOW_BYTES]
                np.copyto(window.numpy()[: part.size], part)
                values, first = window[: part.size].view(dtype), (offset + at) // dtype.itemsize
                into = target if target is not None else assembled.view(-1)  # type: ignore[union-attr]
                into[first : first + values.numel()].copy_(values)
            if target is None and offset + data.size == tensor.bytes:
                view.copy_(assembled)  # type: ignore[arg-type]

    def fingerprint(self) -> str:
        """Fingerprint (docs/design.md, section 8) of the present weights, 16 hex digits."""
        return self.take_fingerprint()()

    def take_fingerprint(self) -> Callable[[], str]:
        """Like `fingerprint`, of the weights as the queued work will leave them. Only calling the result waits for a
        device: once, for all tensors."""
        if not any(view.is_cuda for view in self.views.values()):
            held = ((name, live_fingerprint.tensor_fingerprint(self.read(name))) for name in self.views)
            total = live_fingerprint.model_fingerprint(held)
            return lambda: self._text(total)
        triton = live_fingerprint.on_triton()
        if triton not in self._on_device:  # addresses never change
            shares = (
                Share(view, getattr(torch, self.source.tensors[name].dtype), live_fingerprint.factor(name))
                for name, view in self.views.items()
            )
            self._on_device = {triton: DeviceFingerprint(shares, triton)}
        answer = self._on_device[triton].queue()
        return lambda: self._text(answer())

    def _text(self, held: int) -> str:
        return live_fingerprint.format((self._fixed + held) & _MASK)

    def nonfinite(self) -> list[str]:
        """Names of views that hold NaN or infinity. One pass over memory, no temporary of a tensor's size."""
        return [name for name, view in self.views.items() if view.is_floating_point() and not finite(view)]

    def differing(self) -> list[str]:
        """Names of views that differ in any bit from the files (for `cast`: from their exact upcast)."""
        names = []
        for name, view in self.views.items():
            stored = self.source.read(name).to(device=view.device, dtype=view.dtype)
            if not torch.equal(bits(stored), bits(view)):
                names.append(name)
        return names


def _match(source: ModelDir, name: str, view: torch.Tensor) -> None:
    """Raise ShareRefused unless the view can hold the stored tensor exactly."""
    stored = source.tensors.get(name)
    if stored is None:
        raise ShareRefused(
            f"the engine holds {name}, which {source.path} does not store", "engine and trainer must read one model"
        )
    if stored.shape != tuple(view.shape):
        raise ShareRefused(
            f"{name} has shape {list(view.shape)} in memory and {list(stored.shape)} on disk",
            "report this model's architecture",
        )
    dtype: torch.dtype = getattr(torch, stored.dtype)
    if torch.promote_types(dtype, view.dtype) != view.dtype:
        raise ShareRefused(
            f"{name} is {stored.dtype} on disk, too wide for {view.dtype} in memory",
            "start the engine with --dtype auto",
        )


def finite(tensor: torch.Tensor) -> bool:
    """True without NaN and infinity. Both extremes are NaN if any element is."""
    low, high = torch.aminmax(tensor)
    return bool(torch.isfinite(low) & torch.isfinite(high))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as integers: -0.0 differs from 0.0 and NaN equals itself."""
    return tensor.reshape(-1).view(torch.uint8)
