"""The untrained model's log-probabilities at each position of the probes, kept once, at the baseline: of a text, and of
its own answer to a question. Later weights are scored on the very same tokens, which alone tells how much worse the
answers of the baseline have become.

The file is a msgpack map from id to [tokens of the prompt, a teacher's file (wire/teacher.py), `Reference.decides`], in
the order of ids; files of earlier versions lack the last one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from apollod.core.facts.quality.looking import is_rate
from apollod.errors import RecordRefused
from apollod.wire.teacher import Teacher, read_teacher, write_teacher

LOSS_MAX = 100.0
"""nats a token; also for weights that give NaN"""
Watched = tuple[str, bool]
"""An item's id, and whether its deciding tokens are scored, or all of its answer."""


class _Kept(msgspec.Struct, array_like=True):
    prompt: list[int]
    teacher: bytes
    decides: tuple[int, int] = (0, 0)


class Reference(NamedTuple):
    """The reference of one item: the tokens before the scored ones (for a text its first), and the log-probabilities of
    the latter. `decides`: the tokens of the answer, from and to, that decide whether it passes; (0, 0): all."""

    prompt: tuple[int, ...]
    teacher: Teacher
    decides: tuple[int, int] = (0, 0)

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens, in the order in which they are scored."""
        return (*self.prompt, *self.teacher.answer)

    def scored(self, deciding: bool) -> tuple[tuple[int, ...], int]:
        """Tokens, and the position from which on they are scored: the answer, or its `deciding` tokens."""
        first, last = self._span(deciding)
        return self.ids[: len(self.prompt) + last], len(self.prompt) + first

    def chance(self, deciding: bool) -> float:
        """The geometric mean of the probabilities of these tokens at the baseline. A token outside of the likeliest
        ones counts as the last of them."""
        span = slice(*self._span(deciding))
        places = zip(self.teacher.answer[span], self.places()[span], strict=True)
        logprobs = [place.get(token, min(place.values())) for token, place in places]
        return math.exp(-_loss(math.fsum(logprobs) / len(logprobs)))

    def _span(self, deciding: bool) -> tuple[int, int]:
        return self.decides if deciding and self.decides != (0, 0) else (0, len(self.teacher.answer))

    def places(self) -> list[dict[int, float]]:
        """Log-probabilities of the likeliest tokens at each position of the answer."""
        likeliest = list(zip(self.teacher.ids, self.teacher.logprobs, strict=True))
        return [dict(likeliest[at : at + self.teacher.k]) for at in range(0, len(likeliest), self.teacher.k)]


def write_references(references: Mapping[str, Reference]) -> bytes:
    """The file's bytes; the same for the same values. Raises RecordRefused for invalid log-probabilities."""
    kept = {
        id_: _Kept(list(one.prompt), write_teacher(one.teacher), one.decides)
        for id_, one in sorted(references.items(), key=lambda item: item[0])
    }
    return msgspec.msgpack.encode(kept)


def read_references(blob: bytes) -> dict[str, Reference]:
    """Parse a file of references. Raises RecordRefused if it is malformed."""
    try:
        kept = msgspec.msgpack.decode(blob, type=dict[str, _Kept])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(
            f"these are not references of probes: {error}", "measure the baseline again: apollod ctl quality baseline"
        ) from error
    return {id_: Reference(tuple(one.prompt), read_teacher(one.teacher), one.decides) for id_, one in kept.items()}


def known_items(references: Mapping[str, Reference], items: Mapping[str, Sequence[str]]) -> tuple[Watched, ...]:
    """The items of these metrics that have a reference, each once. Raises RecordRefused for a metric without any."""
    for metric, ids in items.items():
        if not any(id_ in references for id_ in ids):
            raise RecordRefused(
                f"none of the {len(ids)} items of {metric} has a reference",
                "measure the baseline again: apollod ctl quality baseline",
            )
    found = ((id_, is_rate(metric)) for metric, ids in items.items() for id_ in ids if id_ in references)
    return tuple(dict.fromkeys(found))


def watched_items(
    references: Mapping[str, Reference], items: Mapping[str, Sequence[str]], weights: Mapping[str, float]
) -> dict[tuple[Watched, bool], float]:
    """Keys for a ranking: (item, true if its probability counts rather than its loss), with their weights in the means
    of `quality_drops`, where each metric's mean weighs `weights[metric]`. Raises RecordRefused as `known_items`
    does."""
    known_items(references, items)
    found = dict[tuple[Watched, bool], float]()
    for metric, ids in items.items():
        here = [id_ for id_ in ids if id_ in references]
        for id_ in here:
            key = ((id_, is_rate(metric)), not metric.endswith(".loss"))
            found[key] = found.get(key, 0.0) + weights[metric] / len(here)
    return found


def quality_drops(
    references: Mapping[str, Reference], items: Mapping[str, Iterable[str]], now: Mapping[Watched, float]
) -> dict[str, float]:
    """The loss of quality by metric. `now`: the mean log-probability (nats) of a reference's scored tokens, for all
    that are `known_items`.

    For `GROUP.loss` its value, the mean of -now. For any other metric the mean of p_then - p_now, p the geometric mean
    of the probabilities of an answer's tokens: it falls before another answer becomes the likeliest one. For
    `GROUP.passed` only the tokens that decide count: what was learned of other matters changes how the model begins and
    ends its sentences, and that is most of an answer's tokens.
    """
    found = {}
    for metric, ids in items.items():
        here = [(id_, is_rate(metric)) for id_ in ids if id_ in references]
        lost = (
            [_loss(now[one]) for one in here]
            if metric.endswith(".loss")
            else [references[one[0]].chance(one[1]) - math.exp(-_loss(now[one])) for one in here]
        )
        found[metric] = math.fsum(lost) / len(lost)
    return found


def _loss(logprob: float) -> float:
    """Loss in nats a token, 0 to LOSS_MAX. Rounded probabilities may be above 1."""
    return max(0.0, min(LOSS_MAX, -logprob)) if not math.isnan(logprob) else LOSS_MAX
