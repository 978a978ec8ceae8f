"""Figures of answers and texts: of one (repetition, length, entropy, divergence from earlier outputs, and whether it is
language at all), of an item, and of a run: the metrics that the guard watches. Pure."""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean
from typing import Literal

import msgspec

from apollod.curation.probes.probe_item import Kind
from apollod.curation.probes.probe_kinds import KINDS

REST_MIN = 1e-7
"""least probability of all tokens that are not listed, as in the loss of context distillation: rounded probabilities
may sum to 1 or more"""
UNITS_MIN = 24
"""least words, or characters of a very long word, to judge; shorter rows repeat themselves by chance"""
REPEATED = 0.5
"""share of repeated runs of four, from which on a text is garbled"""
LONG = 60
"""characters without a space, from which on they are compared one by one: text of a language without spaces"""

Better = Literal["higher", "lower", "same"]


def repetition(units: Sequence[Hashable], n: int = 4) -> float:
    """Share of repeated runs of `n` tokens, 0 to 1: 1 - distinct / all (the complement of distinct-n, Li et al.,
    arXiv:1510.03055). 0 for fewer than `n`."""
    runs = [tuple(units[place : place + n]) for place in range(len(units) - n + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def length_drift(tokens: int, before: int) -> float:
    """Natural logarithm of the ratio of two lengths: 0 for the same, 0.69 for twice and -0.69 for half as long."""
    return math.log((1 + tokens) / (1 + before))


def entropy(place: Mapping[int, float]) -> float:
    """Lower bound in nats of the entropy at one position, from the log-probabilities of some tokens.

        H = - sum_{v in K} p_v log p_v - P log P        P = 1 - sum_K p_v

    All other tokens count as one, so that this is at most the entropy over the whole vocabulary (by its grouping
    property, the difference is P times the entropy within the rest).
    """
    inside = [math.exp(one) for one in place.values()]
    return -sum(_plogq(p, p) for p in [*inside, _rest(sum(inside))])


def moved(before: Mapping[int, float], now: Mapping[int, float], k: int) -> float:
    """Lower bound in nats of the KL divergence of `now` from `before` at one position, from the log-probabilities of
    the `k` likeliest tokens of each (and perhaps of more, such as the token that stands there). Never negative.

        KL = sum_{v in S} p_v log(p_v / q_v) + P_A log(P_A / Q_A) + P_B log(P_B / Q_B)

    p: before, q: now; S: tokens known in both; A: tokens known only before; B: all others. P_A and P_A + P_B are known;
    of the other side only Q_A + Q_B = 1 - sum_S q_v, and that no token of A is likelier than the k-th likeliest one
    now: Q_A <= |A| q_k. Q_A is chosen within that to minimise the sum: Q_A = min(|A| q_k, (Q_A + Q_B) P_A / (P_A +
    P_B)). So this is at most the KL over the whole vocabulary (log sum inequality, as in the loss of context
    distillation), and it is not small where `now` prefers other tokens altogether, which one bucket for all the rest
    would hide.
    """
    both = before.keys() & now.keys()
    alone = [math.exp(before[token]) for token in before if token not in both]
    known_p = sum(math.exp(before[token]) for token in before if token in both)
    rest_q = _rest(sum(math.exp(now[token]) for token in now if token in both))
    p_a, p_b = sum(alone), _rest(known_p + sum(alone))
    q_a = rest_q * p_a / (p_a + p_b)
    if len(now) >= k:
        q_a = min(q_a, len(alone) * math.exp(sorted(now.values(), reverse=True)[k - 1]))
    inside = sum(math.exp(p) * (p - now[token]) for token, p in before.items() if token in both)
    apart = (_plogq(p_a, p_a) - _plogq(p_a, q_a)) + (_plogq(p_b, p_b) - _plogq(p_b, rest_q - q_a))
    return max(0.0, inside + apart)


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of no values."""
    return math.fsum(values) / len(values) if values else None


def _rest(known: float) -> float:
    return max(REST_MIN, 1.0 - known)


def _plogq(p: float, q: float) -> float:
    return p * math.log(max(q, REST_MIN**2)) if p > 0.0 else 0.0


def garbled(answer: str) -> str:
    """The reason why an answer cannot come from a working model; empty if it can. Repetition is measured on runs of
    four words, and of four characters in words of at least `LONG` characters."""
    if not any(character.isalnum() for character in answer):
        return "it has neither letters nor digits"
    if "\N{REPLACEMENT CHARACTER}" in answer:
        return "it holds bytes that are no text"
    words = answer.split()
    rows = [words, *(list(word) for word in words if len(word) >= LONG)]
    if any(len(row) >= UNITS_MIN and repetition(row) >= REPEATED for row in rows):
        return "it repeats itself"
    return ""


# --- a run ------------------------------------------------------------------------------------------------------------


class ItemFigure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figure of one item. `value`: for a text its mean negative log-probability (nats a token), for anything else
    1.0 passed or 0.0 not.

    `failed`: it could not be measured, and `why`; then a text has no value, and anything else did not pass. Figures of
    an answer are over its tokens; `entropy` and `kl` over all scored positions, for an answer only if it has a
    reference.
    """

    id: str
    group: str
    kind: Kind
    value: float | None = None
    failed: bool = False
    why: str = ""
    """reason why it did not pass, or failed"""
    tokens: int = 0
    """number of tokens of the text, or of the answer"""
    repetition: float | None = None
    surprise: float | None = None
    """mean negative log-probability of the answer's own tokens, nats"""
    entropy: float | None = None
    kl: float | None = None
    """divergence from the reference, nats per token"""
    length_drift: float | None = None
    """logarithm of the ratio of the answer's length to the reference's, see `length_drift`"""
    answer: str = ""
    """beginning of the answer, for people"""


class Metric(msgspec.Struct, frozen=True):
    """Mean over `items` items; None without items. `better`: the good direction; `same`: any change is bad."""

    name: str
    value: float | None
    items: int
    better: Better


class Measurement(msgspec.Struct, frozen=True):
    """One run. `digest`: of the asked items; `first_version` to `last_version` of the weights were seen, -1 if the
    endpoint is not our engine."""

    digest: str
    figures: tuple[ItemFigure, ...]
    metrics: tuple[Metric, ...]
    first_version: int
    last_version: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    left_out: int = 0
    """items left out for lack of a judge"""


_OF_ALL: Mapping[str, Better] = {
    "failed": "lower", "repetition": "lower", "length_drift": "same", "surprise": "same", "entropy": "same",
    "kl": "lower",
}  # fmt: skip


def metrics_of(figures: Sequence[ItemFigure]) -> tuple[Metric, ...]:
    """`GROUP.loss` for texts and `GROUP.passed` for answers of each group; `failed`, the share of items that could not
    be measured (failed texts appear in no loss, only here); `repetition`, `surprise`, `length_drift`, `entropy` and
    `kl`."""
    losses, passes = _by_group(figures, scored=True), _by_group(figures, scored=False)
    found = [_metric(f"{group}.loss", values, "lower") for group, values in losses.items()]
    found += [_metric(f"{group}.passed", values, "higher") for group, values in passes.items()]
    return (*found, *(_metric(name, [getattr(one, name) for one in figures], good) for name, good in _OF_ALL.items()))


def by_metric(figures: Sequence[ItemFigure]) -> dict[str, dict[str, float | None]]:
    """Values to compare with the baseline, by metric and item: `GROUP.loss` for texts, `GROUP.passed` for answers, and
    `repetition`, where None means that it could not be measured; for measured items that have one also `kl`, `entropy`,
    and `length_drift` without its sign. A failed item is missing from the last three: `GROUP` covers it, and without
    references it is unknown whether it belongs there. Lessons are left out, see `by_lesson`."""
    found = defaultdict[str, dict[str, float | None]](dict)
    for one in figures:
        kind = KINDS[one.kind]
        if not kind.by_group:
            continue
        found[f"{one.group}.{'loss' if kind.scored else 'passed'}"][one.id] = None if one.failed else one.value
        if not kind.scored:
            found["repetition"][one.id] = None if one.failed else one.repetition
        drift = None if one.length_drift is None else abs(one.length_drift)
        for name, value in (("kl", one.kl), ("entropy", one.entropy), ("length_drift", drift)):
            if value is not None and not one.failed:
                found[name][one.id] = value
    return dict(found)


def by_lesson(figures: Sequence[ItemFigure]) -> dict[str, float | None]:
    """The share of passed wordings by lesson, 0 to 1. A lesson with a wording that could not be measured is left out:
    that shows nothing about the model."""
    found = defaultdict[str, list[ItemFigure]](list)
    for one in figures:
        if one.kind == "lesson":
            found[one.id.split("/")[1]].append(one)
    return {
        lesson: fmean(one.value or 0.0 for one in own)
        for lesson, own in found.items()
        if not any(one.failed for one in own)
    }


def _by_group(figures: Sequence[ItemFigure], scored: bool) -> Mapping[str, list[float | None]]:
    groups: dict[str, list[float | None]] = defaultdict(list)
    for one in figures:
        if KINDS[one.kind].scored == scored:
            groups[one.group].append(one.value)
    return groups


def _metric(name: str, values: Sequence[float | None], better: Better) -> Metric:
    known = [value for value in values if value is not None]
    return Metric(name, mean(known), len(known), better)
