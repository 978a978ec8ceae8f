"""The untrained model's log-probabilities at each position of the probes, kept once, at the baseline: of a text, and of
its own answer to a question. Later weights are scored on the very same tokens.

The file is a msgpack map from id to [tokens of the prompt, a teacher's file (wire/teacher.py)], in the order of ids.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from apollod.errors import RecordRefused
from apollod.wire.teacher import Teacher, read_teacher, write_teacher

_Kept = dict[str, tuple[list[int], bytes]]


class Reference(NamedTuple):
    """The reference of one item: the tokens before the scored ones (for a text its first), and the log-probabilities of
    the latter."""

    prompt: tuple[int, ...]
    teacher: Teacher

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens, in the order in which they are scored."""
        return (*self.prompt, *self.teacher.answer)

    def places(self) -> list[dict[int, float]]:
        """Log-probabilities of the likeliest tokens at each position of the answer."""
        likeliest = list(zip(self.teacher.ids, self.teacher.logprobs, strict=True))
        return [dict(likeliest[at : at + self.teacher.k]) for at in range(0, len(likeliest), self.teacher.k)]


def write_references(references: Mapping[str, Reference]) -> bytes:
    """The file's bytes; the same for the same values. Raises RecordRefused for invalid log-probabilities."""
    kept: _Kept = {
        id_: (list(one.prompt), write_teacher(one.teacher))
        for id_, one in sorted(references.items(), key=lambda item: item[0])
    }
    return msgspec.msgpack.encode(kept)


def read_references(blob: bytes) -> dict[str, Reference]:
    """Parse a file of references. Raises RecordRefused if it is malformed."""
    try:
        kept = msgspec.msgpack.decode(blob, type=_Kept)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(
            f"these are not references of probes: {error}", "measure the baseline again: apollod ctl quality baseline"
        ) from error
    return {id_: Reference(tuple(prompt), read_teacher(teacher)) for id_, (prompt, teacher) in kept.items()}
