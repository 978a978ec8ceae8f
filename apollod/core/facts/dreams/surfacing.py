"""Records the use of each seed of a pattern, and how much was learned from it."""

from collections.abc import Iterable

from msgspec.structs import replace

from apollod.core.facts.dreams.scenario import Surfaced
from apollod.core.facts.dreams.state import KEPT, Course, Dream


def surface(course: Course, seeds: Iterable[str]) -> None:
    """Count a dream imagined from these seeds. Beyond KEPT seeds, those unused for longest are forgotten."""
    for seed in seeds:
        served = course.surfaced.pop(seed, Surfaced())
        course.surfaced[seed] = replace(served, times=served.times + 1)
    for seed in list(course.surfaced)[: max(0, len(course.surfaced) - KEPT)]:
        del course.surfaced[seed]


def teach(course: Course, dream: Dream) -> None:
    """Credit the seeds of a learned dream with its loss."""
    for seed in dream.seeds:
        if dream.loss is not None and (served := course.surfaced.get(seed)) is not None:
            learned = replace(served, learned=served.learned + 1, taught=served.taught + dream.loss)
            course.surfaced[seed] = learned
