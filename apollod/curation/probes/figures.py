"""Figures of an answer or a text that need no verdict: repetition, length, entropy, and divergence from earlier
outputs."""

import math
from collections.abc import Hashable, Mapping, Sequence

REST_MIN = 1e-7
"""least probability of all tokens that are not listed, as in the loss of context distillation: rounded probabilities
may sum to 1 or more"""


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
