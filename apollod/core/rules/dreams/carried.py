"""Folds of the events by which a journal continues an archive: the progress of each pattern at its end."""

from apollod.core.facts.dreams.course import look_over
from apollod.core.facts.dreams.events import DreamingCarried, PatternCarried, ScenariosCarried
from apollod.core.facts.dreams.held_out_rounds import enough
from apollod.core.facts.dreams.state import DreamsState
from apollod.core.kernel.carried_fields import restore
from apollod.core.kernel.policy import Folds
from apollod.core.state import State


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
