"""Records how often each seed of a pattern was used, and how much was learned from it."""

from collections.abc import Iterable

from msgspec.structs import replace

from apollod.core.dreams.scenario import Surfaced
from apollod.core.dreams.state import KEPT, Course, Dream


def surface(course: Course, seeds: Iterable[str]) -> None:
    """A dream was imagined from them. Of more than KEPT seeds those are forgotten that did not surface for longest."""
    for seed in seeds:
        served = course.surfaced.pop(seed, Surfaced())
        course.surfaced[seed] = replace(served, times=served.times + 1)
    for seed in list(course.surfaced)[: max(0, len(course.surfaced) - KEPT)]:
        del course.surfaced[seed]


def teach(course: Course, dream: Dream) -> None:
    """The dream was learned: its seeds taught what it did."""
    for seed in dream.seeds:
        if dream.loss is not None and (served := course.surfaced.get(seed)) is not None:
            learned = replace(served, learned=served.learned + 1, taught=served.taught + dream.loss)
            course.surfaced[seed] = learned
