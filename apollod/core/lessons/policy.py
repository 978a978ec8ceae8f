"""Which lesson is taught next."""

from apollod.core import inputs as inp
from apollod.core.kernel.input import Input
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.state import State


def advance(state: State, now_ns: int) -> Outcome:
    """Nothing yet."""
    return nothing()


def _later(state: State, input_: Input, now_ns: int) -> Outcome:
    return nothing()


HANDLERS: Handlers = dict.fromkeys(
    (
        inp.LessonWanted, inp.LessonWorded, inp.LessonAsked, inp.LessonPrepared, inp.LessonCallFailed,
        inp.LessonRequested, inp.LessonUnwanted,
    ),
    _later,
)  # fmt: skip
