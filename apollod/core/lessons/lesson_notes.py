"""What a journal that goes on from an archive takes over of lessons: each as it was given and worded, with the events'
times, then `lesson.carried` with what no other event says."""

from collections.abc import Iterator

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core.lessons.state import CARRIED, LessonsState

Dated = tuple[int, ev.Event]


class LessonNotes:
    """Events of lessons that the next journal takes over, noted while all events of the archive go by."""

    def __init__(self) -> None:
        self._given: dict[str, Dated] = {}
        self._worded: dict[str, Dated] = {}

    def see(self, recorded: ev.Recorded) -> None:
        """The next event."""
        match recorded.event:
            case ev.LessonGiven(lesson=lesson):
                self._given[lesson] = recorded.at_ns, recorded.event
            case ev.LessonWorded(lesson=lesson):
                self._worded[lesson] = recorded.at_ns, recorded.event

    def taken_over(self, own: LessonsState, at_ns: int) -> Iterator[Dated]:
        """In an order that folds to `own`. Nothing where there never was a lesson."""
        for id_, lesson in own.lessons.items():
            yield self._given[id_]
            if id_ in self._worded:
                yield self._worded[id_]
            same = {name: getattr(lesson, name) for name in CARRIED}
            yield at_ns, ev.LessonCarried(
                lesson=id_, before=dict(lesson.before), examples=tuple(lesson.examples), curve=tuple(lesson.curve),
                **same,
            )  # fmt: skip
        if own.lessons:
            course = own.open
            yield at_ns, ev.LessonsCarried(
                number=own.number, queue=tuple(own.queue), asked_again=own.asked_again, harmful=own.harmful,
                open=course and replace(course, tried=list(course.tried), todo=list(course.todo)),
            )  # fmt: skip


def carried_lessons(own: LessonsState) -> LessonsState:
    """What is the same before and after: a call that failed is made anew, and no step is repeated."""
    return replace(own, taken_back={}, attempts=0, refusals=0, retry_ns=0, retry_s=0.0, error="")
