"""Carries dreams into a journal that continues an archived one: few events that fold to the same patterns.

Events of the archive are taken over unchanged, with their times, where they suffice: for each pattern its addition, its
held-out scenarios, its last change of state, the tests of its last round; and all events of the dream under way, which
goes on. The rest is in `pattern.carried`, `scenario.carried` and `dreaming.carried`, which are folded here.
"""

from collections.abc import Iterator
from itertools import zip_longest

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core.facts.dreams.course import look_over
from apollod.core.facts.dreams.events import DreamingCarried, PatternCarried, ScenariosCarried
from apollod.core.facts.dreams.held_out_rounds import enough
from apollod.core.facts.dreams.state import Course, DreamsState
from apollod.core.kernel.composing import carried, restore
from apollod.core.kernel.policy import Folds
from apollod.core.schedules import NO_FAILURE
from apollod.core.state import State

SKETCHES_MAX = 100
"""most sketches of each sort in one event"""

Dated = tuple[int, ev.Event]


class DreamNotes:
    """Events of dreams that the next journal takes over, collected in one pass over the archive."""

    def __init__(self) -> None:
        self._added: dict[str, tuple[int, ev.PatternAdded]] = {}
        self._replaced: dict[str, list[Dated]] = {}
        self._became: dict[str, Dated] = {}
        self._held: dict[str, list[Dated]] = {}
        self._round: dict[str, tuple[str, list[Dated]]] = {}
        self._open: list[Dated] = []
        self._purpose: ev.Purpose = "practice"
        self._said: Dated | None = None

    def see(self, recorded: ev.Recorded) -> None:
        """Note the next event."""
        event, dated = recorded.event, (recorded.at_ns, recorded.event)
        match event:
            case ev.PatternAdded():
                name = event.pattern.name
                if name in self._added and self._added[name][1].pattern != event.pattern:
                    self._replaced.setdefault(name, []).append(self._added[name])
                self._added[name] = recorded.at_ns, event
                self._became.pop(name, None)
                self._round.pop(name, None)
            case ev.PatternSettled() | ev.PatternUnsettled() | ev.PatternRetired():
                self._became[event.pattern] = dated
            case ev.DreamRequested(purpose=purpose):
                self._open, self._purpose = [dated], purpose
            case ev.DreamTested(round=round_) if round_:
                name, tests = self._round.get(event.pattern, ("", []))
                self._round[event.pattern] = (round_, [*(tests if name == round_ else []), dated])
            case ev.DreamImagined() | ev.DreamAnswered() | ev.DreamJudged() | ev.DreamTested():
                self._open.append(dated)
            case ev.DreamSettled(dream=dream):
                if self._purpose in ("held-out", "situation"):
                    self._held[dream] = [*self._open, dated]
                self._open = []
            case ev.DreamAbandoned():
                self._open = []
            case ev.DreamingStarted() | ev.DreamingStopped():
                self._said = dated

    def taken_over(self, own: DreamsState, at_ns: int) -> Iterator[Dated]:
        """Events that fold to `own`, in order; none if there never was a pattern or a request."""
        if not own.courses and own.wanted is None and not own.stopped:
            return
        for name, course in own.courses.items():
            for added, old in zip(self._replaced.get(name, ()), own.replaced.get(name, ()), strict=True):
                yield added
                yield added[0], _figures(name, old)
            yield self._added[name]
            for dream in course.apart:
                yield from self._held[dream]
            if name in self._became:
                yield self._became[name]
            tests = self._round.get(name, ("", []))[1]
            yield from tests[len(tests) - len(course.tried) :]  # those before a rollback do not count
        if own.stopped and self._said is not None:
            yield self._said
        if own.wanted is not None and own.wanted.left >= 0:
            said = self._said[1] if self._said is not None else None
            by = said.by if isinstance(said, ev.DreamingStarted) else "archive"
            yield at_ns, ev.DreamingStarted(by=by, pattern=own.wanted.pattern, count=own.wanted.left)
        if own.open is not None:
            yield from self._open
        for name, course in own.courses.items():
            yield at_ns, _figures(name, course)
            yield from ((at_ns, sketches) for sketches in _sketches(name, course))
        yield at_ns, carried(ev.DreamingCarried, own)


def _figures(name: str, course: Course) -> ev.PatternCarried:
    return carried(ev.PatternCarried, course, pattern=name, state="" if course.state == "replaced" else course.state)


def _sketches(name: str, course: Course) -> Iterator[ev.ScenariosCarried]:
    """Sketches by which practised scenarios are never tested in the next journal, and tested ones never practised."""
    practised, varied = (
        [tuple(kept[at : at + SKETCHES_MAX]) for at in range(0, len(kept), SKETCHES_MAX)]
        for kept in (course.practised, course.varied)
    )
    for one, other in zip_longest(practised, varied, fillvalue=()):
        yield ev.ScenariosCarried(pattern=name, practised=one, varied=other)


def carried_dreams(own: DreamsState) -> DreamsState:
    """The part of the state that is the same in both journals: a failed call is made anew, and the next life looks
    again for users of the engine."""
    wanted = own.wanted if own.wanted is None or own.wanted.left >= 0 else None
    return replace(own, users=True, users_reason="", retry=NO_FAILURE, refusals=0, error="", wanted=wanted)


def _pattern_carried(own: DreamsState, state: State, e: PatternCarried, at_ns: int) -> None:
    """Restore the figures of the pattern, after the events that the journal took over for it."""
    course = own.courses[e.pattern]
    restore(course, e, but=("pattern", "state"))
    course.failed = e.failed or not enough(course, course.final, course.final_around)
    course.state = e.state or course.state
    course.practised, course.varied = [], []
    look_over(own)


def _scenarios_carried(own: DreamsState, state: State, e: ScenariosCarried, at_ns: int) -> None:
    course = own.courses[e.pattern]
    course.practised += e.practised
    course.varied += e.varied


def _dreaming_carried(own: DreamsState, state: State, e: DreamingCarried, at_ns: int) -> None:
    restore(own, e)
    look_over(own)


CARRIED: Folds = {
    PatternCarried: _pattern_carried,
    ScenariosCarried: _scenarios_carried,
    DreamingCarried: _dreaming_carried,
}
