"""The result of a run of probes: a figure for each item, and the metrics that the guard watches."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from apollod.curation.probes.figures import mean
from apollod.curation.probes.probe_lines import Kind

Better = Literal["higher", "lower", "same"]


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
    """logarithm of the ratio of the answer's length to the reference's, see `figures.length_drift`"""
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

    @property
    def one_version(self) -> bool:
        """False if the weights changed during the run, so that earlier and later items measure different models."""
        return self.first_version == self.last_version


def metrics_of(figures: Sequence[ItemFigure]) -> tuple[Metric, ...]:
    """`GROUP.loss` for texts and `GROUP.passed` for answers of each group; `failed`, the share of items that could not
    be measured (failed texts appear in no loss, only here); `repetition`, `surprise`, `length_drift`, `entropy` and
    `kl`."""
    losses, passes = _by_group(figures, texts=True), _by_group(figures, texts=False)
    found = [_metric(f"{group}.loss", values, "lower") for group, values in losses.items()]
    found += [_metric(f"{group}.passed", values, "higher") for group, values in passes.items()]
    found += [
        _metric("failed", [float(one.failed) for one in figures], "lower"),
        _metric("repetition", [one.repetition for one in figures], "lower"),
        _metric("length_drift", [one.length_drift for one in figures], "same"),
        _metric("surprise", [one.surprise for one in figures], "same"),
        _metric("entropy", [one.entropy for one in figures], "same"),
        _metric("kl", [one.kl for one in figures], "lower"),
    ]
    return tuple(found)


def by_metric(figures: Sequence[ItemFigure]) -> dict[str, dict[str, float | None]]:
    """Values to compare with the baseline, by metric and item: `GROUP.loss` for texts, `GROUP.passed` for answers, and
    `repetition`, where None means that it could not be measured; for measured items that have one also `kl`, `entropy`,
    and `length_drift` without its sign. A failed item is missing from the last three: `GROUP` covers it, and without
    references it is unknown whether it belongs there."""
    found = defaultdict[str, dict[str, float | None]](dict)
    for one in figures:
        text = one.kind == "text"
        found[f"{one.group}.{'loss' if text else 'passed'}"][one.id] = None if one.failed else one.value
        if not text:
            found["repetition"][one.id] = None if one.failed else one.repetition
        drift = None if one.length_drift is None else abs(one.length_drift)
        for name, value in (("kl", one.kl), ("entropy", one.entropy), ("length_drift", drift)):
            if value is not None and not one.failed:
                found[name][one.id] = value
    return dict(found)


def _by_group(figures: Sequence[ItemFigure], texts: bool) -> Mapping[str, list[float | None]]:
    groups: dict[str, list[float | None]] = defaultdict(list)
    for one in figures:
        if (one.kind == "text") == texts:
            groups[one.group].append(one.value)
    return groups


def _metric(name: str, values: Sequence[float | None], better: Better) -> Metric:
    known = [value for value in values if value is not None]
    return Metric(name, mean(known), len(known), better)
