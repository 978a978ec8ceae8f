"""Known lessons as probes: their held-out wordings, asked without the fact."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from apollod.core.quality.lesson_group import GROUP, LessonCase
from apollod.curation.probes.measured import ItemFigure
from apollod.curation.probes.probe_lines import Probe


def lesson_probes(cases: Iterable[LessonCase]) -> tuple[Probe, ...]:
    """One probe for each held-out wording; ids are `lessons/LESSON/NUMBER`."""
    return tuple(
        Probe(
            id=f"{GROUP}/{case.lesson}/{number}",
            group=GROUP,
            kind="lesson",
            messages=({"role": "user", "content": wording.prompt},),
            expect=(wording.answer, *case.not_these),
            place=f"lesson {case.lesson}",
        )
        for case in cases
        for number, wording in enumerate(case.wordings)
    )


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
