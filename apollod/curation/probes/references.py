"""The untrained model's log-probabilities at each position of the probes, kept once, at the baseline: of a text, and of
its own answer to a question. Later weights are scored on the very same tokens, which alone tells how much worse the
answers of the baseline have become.

The file is a msgpack map from id to [tokens of the prompt, a teacher's file (wire/teacher.py)], in the order of ids.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from apollod.errors import RecordRefused
from apollod.wire.teacher import Teacher, read_teacher, write_teacher

LOSS_MAX = 100.0
"""nats a token; also for weights that give NaN"""
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


def known_items(references: Mapping[str, Reference], items: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The items of these metrics that have a reference, each once. Raises RecordRefused for a metric without any."""
    for metric, ids in items.items():
        if not any(id_ in references for id_ in ids):
            raise RecordRefused(
                f"none of the {len(ids)} items of {metric} has a reference",
                "measure the baseline again: apollod ctl quality baseline",
            )
    return tuple(dict.fromkeys(id_ for ids in items.values() for id_ in ids if id_ in references))


def watched_items(
    references: Mapping[str, Reference], items: Mapping[str, Sequence[str]], weights: Mapping[str, float]
) -> dict[tuple[str, bool], float]:
    """Keys for a ranking: (item id, true if its probability counts rather than its loss), with their weights in the
    means of `quality_drops`, where each metric's mean weighs `weights[metric]`. Raises RecordRefused as `known_items`
    does."""
    known_items(references, items)
    found = dict[tuple[str, bool], float]()
    for metric, ids in items.items():
        here = [id_ for id_ in ids if id_ in references]
        for id_ in here:
            key = (id_, not metric.endswith(".loss"))
            found[key] = found.get(key, 0.0) + weights[metric] / len(here)
    return found


def quality_drops(
    references: Mapping[str, Reference], items: Mapping[str, Iterable[str]], now: Mapping[str, float]
) -> dict[str, float]:
    """The loss of quality by metric. `now`: the mean log-probability (nats) of a reference's answer, for all that are
    `known_items`.

    For `GROUP.loss` its value, the mean of -now. For any other metric the mean of p_then - p_now, p the geometric mean
    of the probabilities of an answer's tokens: it falls before another answer becomes the likeliest one.
    """
    found = {}
    for metric, ids in items.items():
        here = [id_ for id_ in ids if id_ in references]
        lost = (
            [_loss(now[id_]) for id_ in here]
            if metric.endswith(".loss")
            else [chance(references[id_]) - math.exp(-_loss(now[id_])) for id_ in here]
        )
        found[metric] = math.fsum(lost) / len(lost)
    return found


def chance(reference: Reference) -> float:
    """The geometric mean of the probabilities of a reference's tokens at the baseline. A token outside of the likeliest
    ones counts as the last of them."""
    places = zip(reference.teacher.answer, reference.places(), strict=True)
    logprobs = [place.get(token, min(place.values())) for token, place in places]
    return math.exp(-_loss(math.fsum(logprobs) / len(logprobs)))


def _loss(logprob: float) -> float:
    """Loss in nats a token, 0 to LOSS_MAX. Rounded probabilities may be above 1."""
    return max(0.0, min(LOSS_MAX, -logprob)) if not math.isnan(logprob) else LOSS_MAX
