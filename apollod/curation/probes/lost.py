"""Measures how much worse the answers of the baseline have become, from log-probabilities of their tokens alone."""

import math
from collections.abc import Iterable, Mapping, Sequence

from apollod.curation.probes.references import Reference
from apollod.errors import RecordRefused

LOSS_MAX = 100.0
"""nats a token; also for weights that give NaN"""


def known(references: Mapping[str, Reference], items: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The items of these metrics that have a reference, each once. Raises RecordRefused for a metric without any."""
    for metric, ids in items.items():
        if not any(id_ in references for id_ in ids):
            raise RecordRefused(
                f"none of the {len(ids)} items of {metric} has a reference",
                "measure the baseline again: apollod ctl quality baseline",
            )
    return tuple(dict.fromkeys(id_ for ids in items.values() for id_ in ids if id_ in references))


def watched(
    references: Mapping[str, Reference], items: Mapping[str, Sequence[str]], weights: Mapping[str, float]
) -> dict[tuple[str, bool], float]:
    """Keys for a ranking: (item id, true if its probability counts rather than its loss), with their weights in the
    means of `drops`, where each metric's mean weighs `weights[metric]`. Raises RecordRefused as `known` does."""
    known(references, items)
    found = dict[tuple[str, bool], float]()
    for metric, ids in items.items():
        here = [id_ for id_ in ids if id_ in references]
        for id_ in here:
            key = (id_, not metric.endswith(".loss"))
            found[key] = found.get(key, 0.0) + weights[metric] / len(here)
    return found


def drops(
    references: Mapping[str, Reference], items: Mapping[str, Iterable[str]], now: Mapping[str, float]
) -> dict[str, float]:
    """The loss of quality by metric. `now`: the mean log-probability (nats) of a reference's answer, for all that are
    `known`.

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
