"""Carries anchors, lessons and the quality guard from an archive into the journal that goes on from it."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core.facts.holding import SHIPPED_NAME, HoldingState
from apollod.core.facts.lessons.state import LessonsState
from apollod.core.facts.quality.sequential import RUNS_MIN
from apollod.core.facts.quality.state import QualityState
from apollod.core.kernel.composing import carried
from apollod.core.schedules import NO_FAILURE

Dated = tuple[int, ev.Event]


class AnchorNotes:
    """Events of anchors that the next journal takes over, collected in one pass over the archive."""

    def __init__(self) -> None:
        self._frozen: dict[str, Dated] = {}
        self._encoded: dict[str, Dated] = {}
        self._wanted: dict[str, Dated] = {}

    def see(self, recorded: ev.Recorded) -> None:
        """Note the next event."""
        match recorded.event:
            case ev.AnchorWanted(wanted=wanted):
                self._wanted[wanted] = recorded.at_ns, recorded.event
            case ev.AnchorFrozen(anchor=anchor):
                self._frozen[anchor] = recorded.at_ns, recorded.event
            case ev.AnchorEncoded(anchor=anchor):
                self._encoded[anchor] = recorded.at_ns, recorded.event

    def taken_over(self, own: HoldingState, at_ns: int) -> Iterator[Dated]:
        """Events that fold to `own`, in order."""
        for wanted, event in (own.wanted | own.renewed).items():
            yield self._wanted.get(wanted, (at_ns, event))
        for id_, anchor in own.anchors.items():
            at_ns, frozen = self._frozen[id_]
            if anchor.wanted in self._wanted:
                yield self._wanted[anchor.wanted]
            yield at_ns, frozen
            if id_ in self._encoded:
                yield self._encoded[id_]


def carried_holding(own: HoldingState) -> HoldingState:
    """The part of the state that is the same in both journals: divergences are measured anew, and failed anchors are
    tried again."""
    anchors = {id_: replace(one, moved=None, turn=0) for id_, one in own.anchors.items()}
    shipped = {one.wanted: None for one in anchors.values() if one.wanted.startswith(SHIPPED_NAME)}
    return HoldingState(
        anchors=anchors,
        pending=own.pending,
        wanted=own.wanted | own.renewed,
        settled=shipped,
        by_question=own.by_question,
    )


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


# The part of the quality guard that a journal takes over from its archive: the runs of the baseline, so that a decline
# over two journals is still one. Results of looks are not taken over; the next look begins the tests anew.


class QualityNotes:
    """The newest runs of a baseline, collected in one pass over the archive."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, ev.QualityMeasured]] = []

    def see(self, recorded: ev.Recorded) -> None:
        """Note the next event."""
        event = recorded.event
        if not isinstance(event, ev.QualityMeasured) or event.why != "baseline":
            return
        one = (event.probes, event.step)
        same = [dated for dated in self._runs if (dated[1].probes, dated[1].step) == one]
        self._runs = [*same, (recorded.at_ns, event)][-RUNS_MIN:]

    def taken_over(self, state: QualityState) -> Iterator[Dated]:
        """Events to take over, in order."""
        if state.baseline and len(self._runs) == RUNS_MIN and self._runs[-1][1].step == state.at:
            yield from self._runs


def carried_quality(state: QualityState) -> QualityState:
    """The part of the state that is the same in both journals."""
    return QualityState(
        probes=state.probes, contrasts=state.contrasts, baseline=state.baseline, silent=state.silent,
        at=state.at, good=state.at, goods=(state.at,) if state.baseline else (), window_from=state.at,
        references=state.references, number=state.number, incidents=state.incidents, alarms_ns=state.alarms_ns,
        totals=state.totals,
    )  # fmt: skip
