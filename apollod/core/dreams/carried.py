"""Folds of the events by which a journal continues an archive: the progress of each pattern at its end."""

from apollod.core.dreams.course import look_over
from apollod.core.dreams.events import DreamingCarried, PatternCarried, ScenariosCarried
from apollod.core.dreams.held_out_rounds import enough
from apollod.core.dreams.state import DreamsState
from apollod.core.kernel.folding import Folds
from apollod.core.state import State


def _pattern_carried(own: DreamsState, state: State, e: PatternCarried, at_ns: int) -> None:
    """Restore the figures of the pattern, after the events that the journal took over for it."""
    course = own.courses[e.pattern]
    course.dreams, course.practices, course.tokens = e.dreams, e.practices, e.tokens
    course.days, course.day, course.before = e.days, e.day, e.before
    course.misses, course.missed, course.owed = e.misses, e.missed, e.owed
    course.baseline, course.final, course.weak = dict(e.baseline), dict(e.final), e.weak
    course.bare, course.contrast = list(e.bare), list(e.contrast)
    course.last_seeds, course.lately, course.surfaced = e.last_seeds, list(e.lately), dict(e.surfaced)
    course.baseline_around, course.final_around = dict(e.baseline_around), dict(e.final_around)
    course.left_out = dict(e.left_out)
    course.failed = e.failed or not enough(course, course.final, course.final_around)
    course.bootstraps, course.due, course.no_situations = e.bootstraps, e.due, e.no_situations
    course.sampled, course.proofs, course.contrast_held_out = dict(e.sampled), e.proofs, dict(e.contrast_held_out)
    course.settled_at, course.taken_back, course.rechecked = e.settled_at, e.taken_back, e.rechecked
    course.harmed_by, course.recent, course.earliest = dict(e.harmed_by), list(e.recent), list(e.earliest)
    course.state, course.examples = e.state or course.state, list(e.examples)
    course.contrasted, course.shown_under = dict(e.contrasted), dict(e.shown_under)
    course.practised, course.varied = [], []
    look_over(own)


def _scenarios_carried(own: DreamsState, state: State, e: ScenariosCarried, at_ns: int) -> None:
    course = own.courses[e.pattern]
    course.practised += e.practised
    course.varied += e.varied


def _dreaming_carried(own: DreamsState, state: State, e: DreamingCarried, at_ns: int) -> None:
    own.number, own.turn, own.settlings, own.last_settled = e.number, e.turn, e.settlings, e.last_settled
    look_over(own)
    own.learned, own.day, own.of_day = list(e.learned), e.day, e.of_day


CARRIED: Folds = {
    PatternCarried: _pattern_carried,
    ScenariosCarried: _scenarios_carried,
    DreamingCarried: _dreaming_carried,
}
