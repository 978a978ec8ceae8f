"""`apollod/checkpoint.json`: the record in a checkpoint's directory. No numpy here: light processes read it, too.

A directory of the history holds the optimizer of its step and a delta to the weights that the model directory held
before; a *full* one is a complete Hugging Face directory as well. Entries are numbered in the order of writing, which
after a rollback is not the order of steps.
"""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from apollod.errors import CheckpointError
from apollod.explain import reason

ENTRY = "apollod"
"""Directory inside a checkpoint's directory for the files that only apollod reads."""
RECORD = f"{ENTRY}/checkpoint.json"
STATE = f"{ENTRY}/optimizer.safetensors"
UNDO = f"{ENTRY}/undo.delta"

SCHEMA_VERSION = 2
_RECORD_BYTES_MAX = 16 << 20
_ANOTHER = "use another checkpoint; `apollod checkpoint verify` lists those that are whole"


class Entry(msgspec.Struct, frozen=True):
    """Content of checkpoint.json. `number`: 1, 2, ... in the order of writing, 0 for a directory outside the history.
    `before_step` and `before_fingerprint`: content of the model directory at the time of writing ("" without a delta).
    `model`: name of the base model. `optimizer`: its settings. `state_version`: version of the meaning of the
    optimizer's tensors. `files`: bytes of every other file, by its path in the directory."""

    schema_version: int
    number: int
    step: int
    fingerprint: str
    before_step: int
    before_fingerprint: str
    model: str
    full: bool
    optimizer: dict[str, Any]
    torch: str
    state_version: int
    files: dict[str, int]


@dataclass(frozen=True)
class Broken:
    """A directory that is not a whole checkpoint. `entry`: its record, if that can be read; `wrong` then has the files
    that are missing or have another size."""

    path: Path
    reason: str
    entry: Entry | None = None
    wrong: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """All checkpoints of a directory: whole ones in the order of writing, and broken ones."""

    whole: list[tuple[Path, Entry]]
    broken: list[Broken]


def read_entry(path: Path) -> Entry:
    """Return the record of a checkpoint whose files all have their sizes. Raises CheckpointError that names the
    problem."""
    entry = read_record(path)
    if wrong := misfits(path, entry):
        raise CheckpointError(next(iter(wrong.values())), _ANOTHER)
    return entry


def read_record(path: Path) -> Entry:
    """Return the record alone. Raises CheckpointError where it is missing, damaged or of another schema."""
    record = path / RECORD
    try:
        with record.open("rb") as file:
            text = file.read(_RECORD_BYTES_MAX)
        found = msgspec.json.decode(text, type=_Version).schema_version
        if found != SCHEMA_VERSION:
            raise _other_schema(path, found)
        entry = msgspec.json.decode(text, type=Entry)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} is not whole ({RECORD}: {reason(error)})", _ANOTHER) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{record} is damaged ({error})", _ANOTHER) from error
    if not _makes_sense(entry):
        raise CheckpointError(f"{record} is damaged (its numbers or paths cannot be)", _ANOTHER)
    return entry


def misfits(path: Path, entry: Entry) -> dict[str, str]:
    """Relative path -> problem, for every file that is missing or has another size than recorded."""
    wrong = {}
    for name, size in entry.files.items():
        try:
            found = (path / name).stat().st_size
        except OSError as error:
            wrong[name] = f"the checkpoint {path} is not whole ({name}: {reason(error)})"
            continue
        if found != size:
            wrong[name] = f"{path / name} has {found} bytes, recorded are {size}"
    return wrong


def write_entry(path: Path, entry: Entry) -> None:
    """Write the record into the existing directory `path`. The caller flushes it."""
    (path / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n")


def entries(checkpoints: Path) -> Listing:
    """List the checkpoints of a directory, by number. Temporary directories are skipped; a damaged one does not affect
    others."""
    whole: dict[int, tuple[Path, Entry]] = {}
    broken = []
    for path in _directories(checkpoints):
        try:
            entry = read_record(path)
        except CheckpointError as error:
            if path.is_dir():  # else it was just removed
                broken.append(Broken(path, str(error)))
            continue
        if entry.number == 0:
            broken.append(Broken(path, f"{path} belongs to no history: it was written by an export or a replay"))
        elif entry.number in whole:
            other = whole[entry.number][0]
            broken.append(Broken(path, f"{path} has the number {entry.number}, which {other} has, too: one is a copy"))
        elif wrong := misfits(path, entry):
            broken.append(Broken(path, "; ".join(wrong.values()), entry, wrong))
        else:
            whole[entry.number] = (path, entry)
    return Listing([whole[number] for number in sorted(whole)], broken)


def _directories(checkpoints: Path) -> list[Path]:
    """Directories sorted by name. Raises CheckpointError where `checkpoints` exists and cannot be read."""
    try:
        found = sorted(checkpoints.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{checkpoints} cannot be read ({error})", "check its owner and mode") from error
    return [path for path in found if path.is_dir() and not _is_temporary(path.name)]


def _is_temporary(name: str) -> bool:
    return name.startswith(".") or ".tmp-" in name or ".old-" in name


class _Version(msgspec.Struct):
    schema_version: int


def _other_schema(path: Path, found: int) -> CheckpointError:
    if found < SCHEMA_VERSION:
        return CheckpointError(
            f"{path} was written by an older apollod (checkpoint schema {found}, known is {SCHEMA_VERSION})",
            "it is a whole model directory: it can be served and trained as [model] path, but not gone back to",
        )
    return CheckpointError(f"{path} has checkpoint schema {found}, known is {SCHEMA_VERSION}", "use a newer apollod")


def _makes_sense(entry: Entry) -> bool:
    inside = all(
        name and not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts for name in entry.files
    )
    return inside and min(entry.number, entry.step, entry.before_step, *entry.files.values()) >= 0
