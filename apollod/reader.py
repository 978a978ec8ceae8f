"""Reads the weights that apollod writes for other programs (`[weights] bridge = "memmap"`), on this host or by NFS.

    from apollod.reader import Reader

    reader = Reader("/var/lib/apollod/sent")
    while True:
        if (found := reader.poll()) is not None:
            model.load_state_dict(found.tensors)

Needs torch, and nothing of the daemon. A version is read whole or not at all: every file has the digest that was
written beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

import torch

TRIES = 3
_META, _RECORD = "meta.json", "apollod.json"


class Version(NamedTuple):
    """Weights: `number` of the step, its fingerprint as in apollod's journal, and all tensors of the checkpoint, on
    CPU."""

    number: int
    fingerprint: str
    tensors: dict[str, torch.Tensor]


class TornWeights(Exception):
    """Files that do not have the digests written beside them, also when they are read again: a disk or a network that
    lost something."""


class Reader:
    """Follows one directory. `[weights] directory` of apollod, or where it is mounted here."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._seen = ""

    def poll(self) -> Version | None:
        """The newest version; None if it was read before, or if there is none. Raises TornWeights, OSError."""
        for _ in range(TRIES):
            try:
                slot = self._directory / os.readlink(self._directory / "current")
                record = (slot / _RECORD).read_text()
                if record == self._seen:
                    return None
                found = _read(slot, json.loads(record))
            except FileNotFoundError:  # none yet, or the slot is being written again: `current` names the other one
                continue
            if found is not None:
                self._seen = record
                return found
        if not (self._directory / "current").exists():
            return None
        raise TornWeights(f"{self._directory} has other bytes than its {_RECORD} says; send a version again")


def _read(slot: Path, record: dict[str, object]) -> Version | None:
    """The version in a slot; None if a file has another digest."""
    digests = record["files"]
    assert isinstance(digests, dict)
    meta = json.loads((slot / _META).read_text())
    tensors = {}
    for file, digest in digests.items():
        data = bytearray((slot / file).read_bytes())
        if hashlib.blake2b(data, digest_size=32).hexdigest() != digest:
            return None
        name = str(file).removesuffix(".memmap")
        dtype = getattr(torch, str(meta[name]["dtype"]).removeprefix("torch."))
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensors[name] = flat.view(meta[name]["shape"])
    return Version(int(str(record["version"])), str(record["fingerprint"]), tensors)
