"""Encodes events as rows of the journal and decodes them, and chains the rows by hashes.

Pure. An auditor can compute the chain in any language: each of the seven fields previous hash, sequence number, time,
kind, version, key, body is preceded by its length (4 bytes, big-endian), integers are decimal ASCII, text is UTF-8, and
the hash is the SHA-256 of all that. The chain detects edits, gaps and reordering; it does not authenticate: anyone who
can write the file can recompute it, so its head is shown in `status` and can be pinned from outside.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from struct import Struct
from typing import Any

import msgspec

from apollod.core.events import KINDS, Event, Recorded
from apollod.core.settings import LR_DIRECT
from apollod.errors import JournalError

GENESIS = bytes(32)
"""Previous hash of the first event."""

Row = tuple[int, int, bytes, int, bytes, bytes, bytes, bytes]
"""seq, at_ns, kind, version, key, body, prev_hash, hash; text as UTF-8, as it is hashed"""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]


def _nested_settings(body: dict[str, Any]) -> dict[str, Any]:
    """daemon.started 1 -> 2: flat settings became sections, as in the configuration."""
    old = dict(body["settings"])
    nested: dict[str, Any] = {"model_path": old.pop("model_path"), "checkpoint_hook": old.pop("checkpoint_hook", False)}
    checkpoint = {key: old.pop(key) for key in ("keep_base", "replay_max") if key in old}
    checkpoint |= {key: old.pop(f"checkpoint_{key}") for key in _CHECKPOINT_KEYS if f"checkpoint_{key}" in old}
    if "lr_direct" not in old:
        old["lr_direct"] = LR_DIRECT
    return body | {"settings": nested | {"trainer": old, "checkpoint": checkpoint}}


_CHECKPOINT_KEYS = ("delay_s", "keep", "keep_bytes", "keep_days")


def _bridge_facts(body: dict[str, Any]) -> dict[str, Any]:
    """engine.ready 1 -> 2: facts of a bridge were implied by its name."""
    return body | {"in_place": True, "outlives_engine": body["bridge"] == "memfd", "needs_pause": False}


def _limiter_rule(body: dict[str, Any]) -> dict[str, Any]:
    """daemon.started 2 -> 3: there was only one rule, which is no longer the default."""
    settings = body["settings"]
    return body | {"settings": settings | {"trainer": {"limiter_rule": "growth"} | settings.get("trainer", {})}}


def _loss_min(body: dict[str, Any]) -> dict[str, Any]:
    """daemon.started 3 -> 4: every step wrote, at any loss."""
    settings = body["settings"]
    return body | {"settings": settings | {"trainer": {"loss_min": 0.0} | settings.get("trainer", {})}}


def _unguarded(body: dict[str, Any]) -> dict[str, Any]:
    """daemon.started 4 -> 5: measurements were off by default."""
    settings = body["settings"]
    return body | {"settings": settings | {"quality": {"every_steps": 0} | settings.get("quality", {})}}


UPCASTS: dict[tuple[str, int], Upcast] = {
    ("daemon.started", 1): _nested_settings, ("daemon.started", 2): _limiter_rule, ("daemon.started", 3): _loss_min,
    ("daemon.started", 4): _unguarded,
    ("engine.ready", 1): _bridge_facts,
}  # fmt: skip
"""(kind, version) -> function from a body of that version to a body of the next one."""

_encode = msgspec.json.Encoder(order="deterministic").encode
_decoders = {kind: msgspec.json.Decoder(cls) for kind, cls in KINDS.items()}
_current = {kind: {KINDS[kind].version: decoder.decode} for kind, decoder in _decoders.items()}
_decode_now = {kind.encode(): decoders for kind, decoders in _current.items()}
_back = {KINDS[kind]: decoder.decode for kind, decoder in _decoders.items()}
_u32 = Struct(">I").pack
_SHORT = 4096
_LENGTHS = tuple(length.to_bytes(4, "big") for length in range(_SHORT))  # covers nearly every field
_BUG = "this is a bug in apollod"
_NEWER = "this journal was written by a newer apollod; use that version"


def encode_body(event: Event) -> bytes:
    """The event's JSON body. Raises JournalError for an event that would not read back as itself.

    A body that cannot be decoded would stop every later start, and msgspec does not check types at construction and
    writes NaN as null; so decoding is tried here, before anything is written (about 1 µs).
    """
    try:
        body = _encode(event)
        back = _back[type(event)](body)
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError, KeyError, RecursionError) as error:
        raise JournalError(f"an event {event.kind} cannot be recorded: {error}", _BUG) from error
    if back != event:
        raise JournalError(f"an event {event.kind} would not read back as it is: {event!r}", _BUG)
    return body


def decode_event(kind: str, version: int, body: bytes | str) -> Event:
    """The event of a row; bodies of older versions are upcast. Raises JournalError, without a sequence number."""
    decode = _current.get(kind, {}).get(version)
    try:
        return decode(body) if decode else _decode_older(kind, version, body)
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


def decode_rows(rows: Iterable[Row]) -> list[tuple[Recorded, bytes]]:
    """Decode many rows, each with its hash. Raises KeyError if one is not of its kind's current version, or msgspec's
    error: `decode_event` then reads them one by one and reports the problem."""
    return [
        (Recorded(seq, at_ns, _decode_now[kind][version](body)), hash_)
        for seq, at_ns, kind, version, _, body, _, hash_ in rows
    ]


def chain(prev_hash: bytes | bytearray, seq: int, at_ns: int, kind: str, version: int, key: str, body: bytes) -> bytes:
    """The hash of a row (32 bytes), which depends on all rows before it."""
    seq_, at_, key_ = b"%d" % seq, b"%d" % at_ns, key.encode()
    try:
        shared = _shared[kind][version]
    except KeyError:
        shared = _kind_and_version(kind.encode(), version)
    parts = (
        _LENGTHS[len(prev_hash)],
        prev_hash,
        _LENGTHS[len(seq_)],
        seq_,
        _LENGTHS[len(at_)],
        at_,
        shared,
        _u32(len(key_)),
        key_,
        _u32(len(body)),
        body,
    )
    return sha256(b"".join(parts)).digest()


def fitting(rows: Iterable[Row], seq: int, prev_hash: bytes) -> int:
    """The number of these rows, from the first one on, that continue the chain after event `seq` with hash `prev_hash`.

    The hash is that of `chain`, inlined: this runs a million times at a start, and calls would take a tenth of the
    time.
    """
    good, prev, join, lengths, shared = 0, prev_hash, b"".join, _LENGTHS, _shared_by_bytes
    try:
        for found, at_ns, kind, version, key, body, before, hash_ in rows:
            seq += 1
            seq_, at_, keyed, long = b"%d" % seq, b"%d" % at_ns, len(key), len(body)
            try:
                kind_and_version = shared[kind][version]
            except KeyError:
                kind_and_version = _kind_and_version(kind, version)
            parts = (
                lengths[32], prev, lengths[len(seq_)], seq_, lengths[len(at_)], at_, kind_and_version,
                lengths[keyed] if keyed < _SHORT else _u32(keyed), key,
                lengths[long] if long < _SHORT else _u32(long), body,
            )  # fmt: skip
            if found != seq or before != prev or hash_ != sha256(join(parts)).digest():
                break
            prev = hash_
            good += 1
    except TypeError:  # a damaged row may hold other types, for example no key
        pass
    return good


def _kind_and_version(kind: bytes, version: int) -> bytes:
    """Two fields shared by many rows, with their lengths."""
    fields = (kind, b"%d" % version)
    return b"".join(_u32(len(field)) + field for field in fields)


_shared = {kind: {cls.version: _kind_and_version(kind.encode(), cls.version)} for kind, cls in KINDS.items()}
_shared_by_bytes = {kind.encode(): versions for kind, versions in _shared.items()}


def _upcast(kind: str, version: int, target: int, body: bytes | str) -> bytes:
    fields = msgspec.json.decode(body, type=dict[str, Any])
    for step in range(version, target):
        upcast = UPCASTS.get((kind, step))
        if upcast is None:
            raise JournalError(f"there is no upcast of the event {kind} from version {step}", _BUG)
        fields = upcast(fields)
    return _encode(fields)
