"""Lessons that a journal takes over from its archive: the events that gave and worded each, with their times, then
`lesson.carried` with the rest."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core.facts.lessons.state import LessonsState
from apollod.core.kernel.composing import carried
from apollod.core.schedules import NO_FAILURE

Dated = tuple[int, ev.Event]


class LessonNotes:
    """Events of lessons that the next journal takes over, collected in one pass over the archive."""

    def __init__(self) -> None:
        self._given: dict[str, Dated] = {}
        self._worded: dict[str, Dated] = {}
        self._replaced: dict[str, Dated] = {}

    def see(self, recorded: ev.Recorded) -> None:
        """Note the next event."""
        match recorded.event:
            case ev.LessonGiven(lesson=lesson):
                self._given[lesson] = recorded.at_ns, recorded.event
            case ev.LessonWorded(lesson=lesson):
                self._worded[lesson] = recorded.at_ns, recorded.event
            case ev.ExampleReplaced(example=example):
                self._replaced[example] = recorded.at_ns, recorded.event

    def taken_over(self, own: LessonsState, first_looks: Mapping[str, str], at_ns: int) -> Iterator[Dated]:
        """Events that fold to `own`, in order; none if there never was a lesson. `first_looks`: see `IntakeState`."""
        for id_, lesson in own.lessons.items():
            yield self._given[id_]
            if id_ in self._worded:
                yield self._worded[id_]
            yield at_ns, carried(ev.LessonCarried, lesson, lesson=id_)
        yield from (self._replaced[example] for example in own.replaced)
        if own.lessons:
            course = own.open
            yield at_ns, carried(
                ev.LessonsCarried, own, queue=tuple(own.queue), open=course and replace(
                    course, tried=list(course.tried), todo=list(course.todo), examples=dict(course.examples)
                ),
                first_looks=dict(first_looks),
            )  # fmt: skip


def carried_lessons(own: LessonsState) -> LessonsState:
    """The part of the state that is the same in both journals: failed calls are made anew, and no step is repeated."""
    return replace(own, taken_back={}, retry=NO_FAILURE, refusals=0, error="")
