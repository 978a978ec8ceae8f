"""Known lessons in looks: a group of their own, with a lesson as an item. Pure.

An item is compared with its own known state: all of its held-out wordings passed when the lesson was shown to be known.
So a lesson joins without a new baseline, and one that is replaced, forgotten or fading leaves without an alarm. A look
asks a bounded number of them, in turn.

Only lessons shown lately count for an alarm. Lessons fade by themselves over time, and of a thousand most were last
asked long ago: their failures do not concern the steps since the last good look, and going back would not repair them.
They are asked again and practised, and count from then on.
"""

from collections.abc import Mapping
from heapq import nsmallest
from math import ceil

import msgspec

from apollod.core.facts.lessons.state import LessonsState
from apollod.core.facts.lessons.wording import Wording
from apollod.core.facts.quality.baseline import Baseline

GROUP = "lessons"
LESSONS = f"{GROUP}.passed"
"""the metric: share of a lesson's held-out wordings that pass, answered bare and greedily"""
OLDER = f"{GROUP}.older"
"""the same for lessons shown long ago, which raises no alarm"""
RECENT = 1000
"""steps since a lesson was shown for which it counts"""
LESSONS_MAX = 16
"""lessons in a look at all probes: 8 of them have to fail entirely for one look to raise an alarm"""
LEAST = 3
"""least number of items of each group in a look, if it has as many: fewer could not raise doubt even if all failed,
upon which everything is asked (`looking.doubt`)"""


class LessonCase(msgspec.Struct, frozen=True, gc=False):
    """A known lesson in a look. `not_these`: answers that are wrong now, see `AskLesson`."""

    lesson: str
    wordings: tuple[Wording, ...]
    not_these: tuple[str, ...] = ()


def is_asked(own: LessonsState, lesson: str) -> bool:
    """True if looks ask the lesson: it is known and worded."""
    one = own.lessons.get(lesson)
    return one is not None and one.state == "known" and one.worded is not None


def is_recent(own: LessonsState, lesson: str, version: int) -> bool:
    """True if the lesson was shown at most RECENT steps before these weights."""
    return version - own.lessons[lesson].shown <= RECENT


def in_turn(own: LessonsState, version: int, share: float) -> tuple[str, ...]:
    """Ids of the lessons that a look asks at this share of the probes (0 to 1): those shown lately, then others, in
    both the one looked at longest ago first."""
    turns = (
        (not is_recent(own, id_, version), one.looked, int(id_[1:]))
        for id_, one in own.lessons.items()
        if is_asked(own, id_)
    )
    count = max(LEAST, ceil(share * LESSONS_MAX - 1e-9))
    return tuple(f"L{number}" for _, _, number in nsmallest(count, turns))


def counted(own: LessonsState, figures: Mapping[str, float | None], version: int) -> dict[str, dict[str, float | None]]:
    """The figures of lessons by metric, without those that were replaced or forgotten while they were asked."""
    found: dict[str, dict[str, float | None]] = {}
    for lesson, value in figures.items():
        if is_asked(own, lesson):
            found.setdefault(LESSONS if is_recent(own, lesson, version) else OLDER, {})[lesson] = value
    return found


def baseline_of_known(figures: Mapping[str, float | None]) -> Baseline:
    """The baseline of lessons: every wording passed when each was shown to be known."""
    return Baseline(dict.fromkeys(figures, 1.0), 0.0)
