"""Maps tensors to the safetensors files of a model directory, read with limits, without torch and without numpy; and
reads the shapes of all tensors, from these headers or from config.json alone.

The format: 8 bytes little-endian length of the header, the header (JSON: name -> dtype, shape, data_offsets), data
without gaps or overlaps up to the end of the file. Headers are kept byte for byte, to be written again with new
weights.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any

from apollod.errors import ModelRefused
from apollod.explain import reason
from apollod.model.shapes import ModelShapes, Stored, known_from_config, shapes_of, taken_for_bf16
from apollod.store.disk import REAL, Disk, opened
from apollod.wire.manifest import ITEM_BYTES, SAFETENSORS

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
HEADER_BYTES_MAX = 100_000_000  # the format's own limit
INDEX_BYTES_MAX = 100_000_000

DTYPES = {short: name for name, short in SAFETENSORS.items()}

BUILD_S = 120.0
"""Time limit, in seconds, for importing transformers and building the model without memory."""

_COPY_AGAIN = "copy the model again"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file. `dtype`: its torch name; `start`: offset of its first byte in the file."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def bytes(self) -> int:
        """Bytes of data."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class WeightFile:
    """One safetensors file. `header`: its bytes up to the data; `tensors` in the order of their data."""

    name: str
    header: bytes
    tensors: tuple[StoredTensor, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the whole file."""
        return len(self.header) + sum(tensor.bytes for tensor in self.tensors)


def read_files(directory: Path, disk: Disk = REAL) -> tuple[WeightFile, ...]:
    """Return all weight files, sorted by name. Raises ModelRefused where they do not form one complete model."""
    files = tuple(read_header(directory, name, disk) for name in weight_names(directory, disk))
    seen: set[str] = set()
    for tensor in (tensor for file in files for tensor in file.tensors):
        if tensor.name in seen:
            raise ModelRefused(
                f"two files of {directory} hold {tensor.name}", "remove files that are not part of the model"
            )
        seen.add(tensor.name)
    return files


def layout_digest(files: Iterable[WeightFile]) -> str:
    """BLAKE2b-128 of the names and headers: equal for all weights of one model in one layout, and for nothing else."""
    digest = blake2b(digest_size=16)
    for file in files:
        name = file.name.encode()
        digest.update(len(name).to_bytes(4, "little") + name + file.header)
    return digest.hexdigest()


def weight_names(directory: Path, disk: Disk = REAL) -> list[str]:
    """Names of the safetensors files, sorted."""
    index = str(directory / INDEX)
    try:
        if info := disk.stat(index):
            if info.size > INDEX_BYTES_MAX:
                raise ModelRefused(f"{index} has {info.size} bytes", _COPY_AGAIN)
            with opened(disk, index) as fd:
                return _names_of_index(directory, disk.read(fd, 0, info.size))
        if disk.stat(str(directory / SINGLE)):
            return [SINGLE]
    except OSError as error:
        raise ModelRefused(f"{directory} cannot be read ({error})", "check its owner and mode") from error
    raise ModelRefused(
        f"{directory} holds neither {SINGLE} nor {INDEX}", "give a Hugging Face directory with safetensors weights"
    )


def _names_of_index(directory: Path, text: bytes) -> list[str]:
    try:
        names = sorted(set(json.loads(text)["weight_map"].values()))
        outside = any(Path(name).name != name for name in names)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelRefused(f"{directory / INDEX} is damaged ({error!r})", _COPY_AGAIN) from error
    if outside:
        raise ModelRefused(f"{directory / INDEX} names files outside its directory", _COPY_AGAIN)
    if not names:
        raise ModelRefused(f"{directory / INDEX} names no file", _COPY_AGAIN)
    return names


def read_header(directory: Path, name: str, disk: Disk = REAL) -> WeightFile:
    """Return names, shapes and places of one file's tensors. Raises ModelRefused that names the problem."""
    where = directory / name
    try:
        header, file_bytes = _header_bytes(where, disk)
        table: dict[str, Any] = json.loads(header[8:], object_pairs_hook=_once)
        table.pop("__metadata__", None)
        tensors = [_stored(tensor, name, entry, len(header)) for tensor, entry in table.items()]
    except OSError as error:
        raise ModelRefused(f"{where} cannot be read ({reason(error)})", _COPY_AGAIN) from error
    except RecursionError as error:
        raise ModelRefused(f"{where} is no safetensors file (its header is nested too deep)", _COPY_AGAIN) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelRefused(f"{where} is no safetensors file ({error!r})", _COPY_AGAIN) from error
    tensors.sort(key=lambda t: (t.start, t.bytes))
    end = len(header)
    for tensor in tensors:
        if tensor.start != end:
            raise ModelRefused(f"{where}: {tensor.name} starts at byte {tensor.start}, not {end}", _COPY_AGAIN)
        end += tensor.bytes
    if end != file_bytes:
        raise ModelRefused(f"{where} has {file_bytes} bytes, its header says {end}", _COPY_AGAIN)
    return WeightFile(name, header, tuple(tensors))


def _header_bytes(where: Path, disk: Disk) -> tuple[bytes, int]:
    """(length and header, bytes of the file); ValueError for an impossible length."""
    path = str(where)
    with opened(disk, path) as fd:
        info = disk.stat(path)
        size = info.size if info else 0
        if size < 8:
            raise ValueError(f"it has {size} bytes")
        count = int.from_bytes(disk.read(fd, 0, 8), "little")
        if count > HEADER_BYTES_MAX:
            raise ValueError(f"a header of {count} bytes, allowed are {HEADER_BYTES_MAX}")
        if 8 + count > size:
            raise ValueError(f"a header of {count} bytes in a file of {size}")
        return disk.read(fd, 0, 8 + count), size


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError(f"the header names {next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))} twice")
    return table


def _stored(name: str, file: str, entry: dict[str, Any], data_start: int) -> StoredTensor:
    if entry["dtype"] not in DTYPES:
        raise ModelRefused(
            f"{name} in {file} is stored as {entry['dtype']}", "quantized weights cannot be trained in place"
        )
    begin, end = (int(offset) for offset in entry["data_offsets"])
    stored = StoredTensor(name, file, DTYPES[entry["dtype"]], tuple(int(n) for n in entry["shape"]), data_start + begin)
    if begin < 0 or min(stored.shape, default=0) < 0 or end - begin != stored.bytes:
        raise ValueError(f"{name} of shape {list(stored.shape)} in {end - begin} bytes")
    return stored


# --- shapes -----------------------------------------------------------------------------------------------------------


def read_shapes(directory: Path) -> ModelShapes:
    """Read shapes from config.json and the headers of the weight files. Without weight files, for an architecture
    unknown here, from the model that transformers builds from config.json, in a process of its own (seconds). Raises
    ModelRefused."""
    stored: dict[str, Stored] = {}
    if any((directory / name).is_file() for name in (INDEX, SINGLE)):
        stored = {t.name: Stored(t.dtype, t.shape, t.bytes) for file in read_files(directory) for t in file.tensors}
    config = _config_of(directory / "config.json")
    return shapes_of(config, stored) if stored or known_from_config(config) else _built(directory, config)


def _built(directory: Path, config: dict[str, Any]) -> ModelShapes:
    """Shapes as the checkpoint would have them, from a model that transformers builds."""
    command = [sys.executable, "-m", "apollod.trainer.config_shapes", str(directory)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
        why = done.stderr.strip().rpartition("\n")[2]
    except subprocess.TimeoutExpired:
        done, why = None, f"transformers has not built it in {BUILD_S:.0f} s"
    if done is None or done.returncode:
        kind = (config.get("text_config") or config).get("model_type", "none")
        raise ModelRefused(
            f"there is no *.safetensors, and the tensors of model_type {kind} are not known from config.json alone: "
            f"{why}",
            "copy the weights into the model directory, or install a version of transformers that knows this model",
        )
    told = json.loads(done.stdout.strip().rpartition("\n")[2])
    return shapes_of(
        told["text"], taken_for_bf16({name: tuple(shape) for name, shape in told["shapes"].items()}), False
    )


def _config_of(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelRefused(
            f"{path} cannot be read ({reason(error)})", "set [model] path to a local Hugging Face directory"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelRefused(f"{path} is not JSON ({error})", "restore it from where the model came from") from error
    if not isinstance(found, dict):
        raise ModelRefused(f"{path} is no JSON object", "restore it from where the model came from")
    return found
