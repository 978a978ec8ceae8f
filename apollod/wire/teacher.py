"""The file of a teacher: its log-probabilities of an answer, token by token, for the trainer.

The file, everything little-endian and without gaps:

    magic     8 bytes       "apoTEA01"
    n, k      u32, u32      tokens of the answer, likeliest tokens at each
    version   i64           of the weights that said so; -1: not known
    answer    u32 [n]       ids of the answer, with the token that ends it
    ids       u32 [n, k]    of the likeliest tokens in each place, different ones in a row
    logprobs  f32 [n, k]    their natural logarithms at temperature 1, given the told context and the answer so far

Its name is the BLAKE2b-128 of its bytes, which `b2sum -l 128` prints.
"""

import math
import struct
from array import array
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from apollod.errors import RecordRefused

MAGIC = b"apoTEA01"
_HEAD = struct.Struct("<8sIIq")  # arrays follow; all platforms that the trainer runs on are little-endian, too
K_MAX = 1024
MASS_MAX = 1.001
"""largest sum of float32 probabilities in one place; a larger one is refused"""


class Teacher(NamedTuple):
    """See the head of this file: `answer` and `ids` of typecode "I", `logprobs` "f"; the last two of n rows."""

    answer: "array[int]"
    ids: "array[int]"
    logprobs: "array[float]"
    k: int
    version: int = -1


class GivenBlob(msgspec.Struct, frozen=True):
    """A file beside the journal, in a record for the trainer. `blob`: its bytes, empty if it could not be read, for the
    reason `why`."""

    digest: str
    blob: bytes = b""
    why: str = ""

    def checked(self, name: str) -> bytes:
        """The bytes. Raises RecordRefused for a file that is missing or not the one that the journal names."""
        back = f"put blobs/{self.digest} back, beside the journal, as it was"
        if self.why or not self.blob:
            raise RecordRefused(f"{name} {self.digest} is not there ({self.why or 'it is empty'})", back)
        if (found := digest_of(self.blob)) != self.digest:
            raise RecordRefused(f"{name} {self.digest} was changed, it is {found} now", back)
        return self.blob


class GivenTeacher(GivenBlob, frozen=True):
    """A teacher in a record, for the trainer."""

    def read(self) -> Teacher:
        """The teacher; raises RecordRefused as `checked`, and for other bytes."""
        return read_teacher(self.checked("its teacher"))


def digest_of(blob: bytes) -> str:
    """The name of a teacher's file: 32 hex digits."""
    return blake2b(blob, digest_size=16).hexdigest()


def write_teacher(teacher: Teacher) -> bytes:
    """The file; the same bytes for the same values. Raises RecordRefused for an invalid teacher."""
    _check(teacher)
    head = _HEAD.pack(MAGIC, len(teacher.answer), teacher.k, teacher.version)
    return head + teacher.answer.tobytes() + teacher.ids.tobytes() + teacher.logprobs.tobytes()


def read_teacher(blob: bytes) -> Teacher:
    """The teacher in a file; raises RecordRefused for other bytes."""
    if len(blob) < _HEAD.size or not blob.startswith(MAGIC):
        raise _refused("its first bytes are not those of one")
    _, count, k, version = _HEAD.unpack_from(blob)
    if len(blob) != _HEAD.size + 4 * count * (1 + 2 * k):
        raise _refused(f"it has {len(blob)} bytes, which {count} tokens with {k} likeliest ones do not take")
    ids, logprobs = _HEAD.size + 4 * count, _HEAD.size + 4 * count * (1 + k)
    teacher = Teacher(
        array("I", blob[_HEAD.size : ids]), array("I", blob[ids:logprobs]), array("f", blob[logprobs:]), k, version
    )
    _check(teacher)
    return teacher


def _check(teacher: Teacher) -> None:
    count, k = len(teacher.answer), teacher.k
    if not count or not 0 < k <= K_MAX:
        raise _refused(f"it is of {count} tokens with {k} likeliest ones")
    if len(teacher.ids) != count * k or len(teacher.logprobs) != count * k:
        raise _refused(
            f"{len(teacher.ids)} ids and {len(teacher.logprobs)} log-probabilities are not {count} times {k}"
        )
    for place in range(count):
        row = slice(place * k, place * k + k)
        ids, logprobs = teacher.ids[row], teacher.logprobs[row]
        if len(set(ids)) != k:
            raise _refused(f"a token comes twice in place {place + 1} of the answer")
        mass = sum(map(math.exp, logprobs)) if all(one <= 1.0 for one in logprobs) else math.inf
        if not mass <= MASS_MAX:  # also false for NaN
            raise _refused(f"the probabilities in place {place + 1} of the answer sum to {mass:.6g}")


def _refused(why: str) -> RecordRefused:
    return RecordRefused(f"this is no teacher: {why}", "leave it out, or ask the engine again")
