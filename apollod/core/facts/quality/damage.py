"""Builds the search for harmful examples from the drops that replays measured. Pure."""

import math
from collections.abc import Mapping, Sequence

from apollod.core.facts.quality.culprits import Search, search, told
from apollod.core.facts.quality.state import Asked, Incident
from apollod.core.facts.training import Learned

MARGIN_MIN = 0.01
"""least margin when drops of several metrics are added"""

SCORINGS_MAX = 8
"""most scorings of a replay: a single step moves the damage, and the next ones undo it (docs/decisions/0042)"""


def scored_after(steps: int) -> tuple[int, ...]:
    """The numbers of steps of a window of `steps` after which a replay is scored, descending from all of them: evenly
    spaced in the last quarter."""
    quarter = max(1, steps // 4)
    count = min(SCORINGS_MAX, quarter)
    return tuple(steps - quarter * place // count for place in range(count))


def mean(scored: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean drop of each metric over these scorings of the same metrics."""
    return {name: math.fsum(drops[name] for drops in scored) / len(scored) for name in scored[0]}


def examples_of(steps: Sequence[Learned]) -> tuple[str, ...]:
    """Each example of these steps once, in the order of first learning."""
    return tuple(dict.fromkeys(one for step in steps for one in step.examples))


def total(drops: Mapping[str, float], margins: Mapping[str, float]) -> float:
    """The damage: sum over all metrics of the drop below the baseline, in margins."""
    return math.fsum(drop / unit(name, margins) for name, drop in sorted(drops.items()))


def unit(name: str, margins: Mapping[str, float]) -> float:
    """The drop of a metric that counts as one margin."""
    return max(MARGIN_MIN, margins.get(name, 0.0))


def searched(incident: Incident) -> Search:
    """The search of an incident after its measured replays."""
    replays = [one for one in incident.replays if one.drops is not None]
    return search_of(incident.window, incident.culprits_max, replays, incident.margins)


def search_of(
    window: Sequence[str], culprits_max: int, replays: Sequence[Asked], margins: Mapping[str, float]
) -> Search:
    """The search after these replays, all of which were measured."""
    own = search(len(window), culprits_max)
    places = {example: place for place, example in enumerate(window)}
    for one in replays:
        own = told(own, (places[example] for example in one.left_out), total(one.drops or {}, margins), one.lr_scale)
    return own
