"""Distances after which a known lesson is asked again, parsed from the configuration. Pure."""

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class Distance(NamedTuple):
    """Seconds, or steps; the other one is 0."""

    seconds: int = 0
    steps: int = 0


@cache
def distance_of(text: str) -> Distance:
    """Parse a distance, such as `1h`, `30 d` or `200 steps`. Raises ValueError for anything else."""
    found = re.fullmatch(r"([1-9][0-9]{0,5}) ?(s|min|h|d|w|steps?)", text)
    if found is None:
        raise ValueError(f'{text!r} is no distance; write a number from 1 with s, min, h, d, w or steps, such as "1h"')
    number, unit = int(found[1]), found[2]
    return Distance(seconds=number * _SECONDS[unit]) if unit in _SECONDS else Distance(steps=number)


def nth(distances: Sequence[str], index: int) -> Distance | None:
    """The distance with this index; the last one beyond the end; None if there is none."""
    return distance_of(distances[min(index, len(distances) - 1)]) if distances else None


def longest_s(distances: Sequence[str]) -> int:
    """Longest wait of a lesson, in seconds."""
    return max((distance_of(text).seconds for text in distances), default=0)
