"""A folded state as bytes and back, for the journal's snapshots. Pure.

A snapshot is a cache of `fold`: it may only be read by the code that wrote it, so its key is a digest of that code's
source, not a version number to be raised by hand.
"""

from collections import deque
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from typing import Any

import msgspec

from apollod.core.facts.intake.state import Waiting
from apollod.core.state import State

_CODECS = ("event_codec.py", "state_snapshot.py")


@cache
def fold_code() -> str:
    """Digest (SHA-256, hex) of the source that folds rows into a state, and of the version of its codec."""
    digest = sha256(msgspec.__version__.encode())
    core, wire = files("apollod.core"), files("apollod.wire")
    for source in [*_sources(core), *(wire / name for name in _CODECS)]:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources(package: Traversable) -> Iterator[Traversable]:
    """All source files of a package, in the order of their names."""
    for entry in sorted(package.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry


def dump_state(state: State) -> bytes:
    """The state as JSON, so that a person can read a snapshot."""
    return _encoder.encode(state)


def load_state(data: bytes) -> State:
    """The state that `dump_state` wrote. Raises msgspec.MsgspecError for anything else."""
    state = _decoder.decode(data)
    # In the state, examples that are not tokenised yet are the same objects at the end of both deques of a queue.
    for queue in state.intake.queues:
        queue.untokenised = deque(islice(queue.waiting, len(queue.waiting) - len(queue.untokenised), None))
    return state


def _to_list(value: Any) -> Any:
    if isinstance(value, deque):
        return list(value)
    raise NotImplementedError(f"a state holds a {type(value).__name__}, which has no form in a snapshot")


def _from_list(kind: Any, value: Any) -> Any:
    if kind == deque[Waiting]:
        return deque(msgspec.convert(value, list[Waiting]))
    raise NotImplementedError(f"a state holds a {kind}, which has no form in a snapshot")


_encoder = msgspec.json.Encoder(enc_hook=_to_list)  # keeps the order
_decoder = msgspec.json.Decoder(State, dec_hook=_from_list)
