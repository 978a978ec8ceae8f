"""Chooses the items of a run without time for all: the same share of every group, in turns."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import blake2b

from apollod.core.quality.lesson_group import LEAST
from apollod.curation.probes.probe_lines import PROBES_MAX, Probe

LARGE, TRIED = 40, 8
"""size above which a group is tried on some items first, and their number"""


def of_large_groups(items: Sequence[Probe]) -> tuple[Probe, ...]:
    """TRIED items of each group with more than LARGE."""
    counts = Counter(probe.group for probe in items)
    return sample([probe for probe in items if counts[probe.group] > LARGE], TRIED / PROBES_MAX, 0, TRIED)


def sample(items: Sequence[Probe], share: float, turn: int, least: int = LEAST) -> tuple[Probe, ...]:
    """The items of run number `turn`, in the order of `items`: the `share` (above 0, up to 1) of each group, rounded
    up, but at least `least`. The order within a group follows from ids alone, and each turn starts where the last one
    ended, so that n runs cover a group of n times as many items as one run asks of it."""
    if not 0.0 < share <= 1.0:
        raise ValueError(f"a share of {share} of the probes cannot be asked")
    groups: dict[str, list[str]] = defaultdict(list)
    for probe in items:
        groups[probe.group].append(probe.id)
    chosen: set[str] = set()
    for ids in groups.values():
        ids.sort(key=lambda one: blake2b(one.encode(), digest_size=8).digest())
        count = min(len(ids), max(least, math.ceil(share * len(ids) - 1e-9)))
        chosen |= {ids[(turn * count + place) % len(ids)] for place in range(count)}
    return tuple(probe for probe in items if probe.id in chosen)
