"""The record of an update of the weights by an outside trainer: an example whose step writes tensors.

The tensors lie in safetensors files, `<state>/updates/DIGEST`, named by the BLAKE2b-256 of their bytes. The record is
small, and names them.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from apollod.errors import RecordRefused

NAME = "updates"
"""the directory of the files, in the state directory"""
_BEGINNING = b'{"update":'


class UpdateForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An update for people. `number`: as in the journal; `files`: digests, in the order in which they were received;
    `moments`: whether the optimizer keeps its moments over it."""

    number: int
    dialect: str
    by: str
    label: str
    files: list[str]
    tensors: int
    bytes: int
    moments: bool = True


class UpdateRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An update. For the trainer: `where`, directories that may hold its files."""

    update: UpdateForm
    where: list[str] = []

    @property
    def digest(self) -> str:
        """Its digest as an encoded example: 32 hex digits of BLAKE2b-128."""
        return blake2b(update_json(self), digest_size=16).hexdigest()


_DECODER = msgspec.json.Decoder(UpdateRecord)


def is_update(canonical: bytes) -> bool:
    """True for the record of an update."""
    return canonical.startswith(_BEGINNING)


def update_json(record: UpdateRecord) -> bytes:
    """The canonical record, without directories."""
    return msgspec.json.encode(UpdateRecord(record.update), order="sorted")


def decode_update(canonical: bytes) -> UpdateRecord:
    """The record of an update. Raises RecordRefused."""
    try:
        return _DECODER.decode(canonical)
    except msgspec.MsgspecError as error:
        raise RecordRefused(f"the bytes are no record of an update: {error}", "give what `update_json` made") from error


def with_directories(canonical: bytes, directories: list[str]) -> bytes:
    """The canonical record for the trainer, with the directories that may hold its files."""
    return b'%b,"where":%b}' % (canonical[:-1], msgspec.json.encode(directories))


def as_words(record: UpdateRecord) -> str:
    """Describes an update, for readers of texts."""
    form = record.update
    label = f", {form.label!r}" if form.label else ""
    return (
        f"update {form.number} of the weights by {form.by} ({form.dialect}{label}): {form.tensors:,} tensors, "
        f"{form.bytes:,} bytes"
    )
