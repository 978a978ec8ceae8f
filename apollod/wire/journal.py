"""How an event becomes a row of the journal and back, and how rows are chained.

Pure. An auditor can compute the chain in any language: each of the seven fields previous hash, sequence number, time,
kind, version, key, body is preceded by its length (4 bytes, big-endian), integers are decimal ASCII, text is UTF-8,
and the hash is the SHA-256 of all that. The chain detects edits, gaps and reordering; it does not authenticate: whoever can
write the file can chain it anew, which is why its head is shown in `status` and can be pinned from outside.
"""

from collections.abc import Callable
from hashlib import sha256
from struct import Struct
from typing import Any

import msgspec

from apollod.core.events import KINDS, Event
from apollod.errors import JournalError

GENESIS = bytes(32)
"""What the first event is chained to."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTS: dict[tuple[str, int], Upcast] = {}
"""(kind, version) -> function from a body of that version to a body of the next one."""

_encoder = msgspec.json.Encoder(order="deterministic")
_decoders = {kind: msgspec.json.Decoder(cls) for kind, cls in KINDS.items()}
_current = {(kind, KINDS[kind].version): decoder for kind, decoder in _decoders.items()}
_u32 = Struct(">I").pack
_LENGTHS = tuple(length.to_bytes(4, "big") for length in range(64))  # of a hash, and of integers in decimal
_BUG = "this is a bug in apollod"
_NEWER = "this journal was written by a newer apollod; use that version"


def encode_body(event: Event) -> bytes:
    """The event's JSON body. Raises JournalError for an event that would not read back as itself.

    A body that cannot be decoded would stop every later start, and msgspec does not check types at construction and
    writes NaN as null; so the way back is tried here, before anything is written (about 1 µs).
    """
    try:
        body = _encoder.encode(event)
        back = _decoders[event.kind].decode(body)
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError, KeyError, RecursionError) as error:
        raise JournalError(f"an event {event.kind} cannot be recorded: {error}", _BUG) from error
    if back != event:
        raise JournalError(f"an event {event.kind} would not read back as it is: {event!r}", _BUG)
    return body


def decode_event(kind: str, version: int, body: bytes | str) -> Event:
    """The event of a row; bodies of older versions are upcast. Raises JournalError, with no sequence number in it."""
    decoder = _current.get((kind, version))
    try:
        return decoder.decode(body) if decoder else _decode_older(kind, version, body)
    except msgspec.MsgspecError as error:
        raise JournalError(
            f"the body of an event {kind} (version {version}) does not decode: {error}",
            "`apollod ctl journal verify` tells whether it was edited; restore a backup",
        ) from error


def _decode_older(kind: str, version: int, body: bytes | str) -> Event:
    cls = KINDS.get(kind)
    if cls is None:
        raise JournalError(f"the event kind {kind!r} is not known to this apollod", _NEWER)
    if version > cls.version:
        raise JournalError(f"the event {kind} has version {version}, this apollod knows up to {cls.version}", _NEWER)
    return _decoders[kind].decode(_upcast(kind, version, cls.version, body))


def chain(prev_hash: bytes, seq: int, at_ns: int, kind: str, version: int, key: str, body: bytes) -> bytes:
    """The hash of a row (32 bytes), which depends on every row before it."""
    seq_, at_, key_ = b"%d" % seq, b"%d" % at_ns, key.encode()
    parts = (
        _LENGTHS[len(prev_hash)], prev_hash, _LENGTHS[len(seq_)], seq_, _LENGTHS[len(at_)], at_,
        _shared.get((kind, version)) or _kind_and_version(kind, version), _u32(len(key_)), key_, _u32(len(body)), body,
    )
    return sha256(b"".join(parts)).digest()


def _kind_and_version(kind: str, version: int) -> bytes:
    """Two fields that many rows share, with their lengths."""
    fields = (kind.encode(), b"%d" % version)
    return b"".join(_u32(len(field)) + field for field in fields)


_shared = {(kind, cls.version): _kind_and_version(kind, cls.version) for kind, cls in KINDS.items()}


def _upcast(kind: str, version: int, target: int, body: bytes | str) -> bytes:
    fields = msgspec.json.decode(body, type=dict[str, Any])
    for step in range(version, target):
        upcast = UPCASTS.get((kind, step))
        if upcast is None:
            raise JournalError(f"there is no upcast of the event {kind} from version {step}", _BUG)
        fields = upcast(fields)
    return _encoder.encode(fields)
