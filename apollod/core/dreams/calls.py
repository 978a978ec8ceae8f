"""The calls that a dream waits for, as effects."""

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core.dreams.course import Case
from apollod.core.dreams.machine import Stage
from apollod.core.dreams.scenario import Turn
from apollod.core.dreams.state import Course, Dream
from apollod.core.settings import PatternSettings
from apollod.core.state import State


def call_of(state: State, dream: Dream) -> fx.Effect:
    """What the dream under way waits for."""
    own = state.dreams
    course, attempt = own.courses[dream.pattern], own.attempts + 1
    pattern = course.pattern
    match dream.stage:
        case Stage.IMAGINING:
            held = dream.purpose == "held-out"
            return fx.ImagineScenario(
                dream.id, attempt, pattern, dream.purpose, int(dream.id[1:]),
                unlike=() if held else tuple(course.lately), last_seeds=course.last_seeds,
                variation_of=course.lately[-1] if dream.purpose == "variation" and course.lately else (),
            )  # fmt: skip
        case Stage.ANSWERING:
            return fx.AnswerScenario(dream.id, attempt, dream.scenario, expected(pattern, dream.mode, dream.contrast))
        case Stage.TESTING | Stage.TESTING_CONTRAST:
            mode: ev.Mode = "bare" if dream.stage is Stage.TESTING else "contrast"
            contrast = dream.contrast if mode == "contrast" else ""
            return _test(pattern, dream.id, "", mode, contrast, attempt, dream.scenario)
    return fx.JudgeDream(
        dream.id, attempt, dream.stage, pattern, dream.mode, expected(pattern, dream.mode, dream.contrast),
        dream.scenario, dream.answer,
    )  # fmt: skip


def expected(pattern: PatternSettings, mode: ev.Mode, contrast: str) -> str:
    """What an answer is judged by, which is what a model that is told gets to read."""
    return contrast if mode == "contrast" else pattern.instruction


def case_call(course: Course, case: Case, attempts: int) -> fx.TestScenario:
    scenario = course.held[case.dream].scenario
    return _test(course.pattern, case.dream, case.round, case.mode, case.contrast, attempts + 1, scenario)


def _test(
    pattern: PatternSettings, dream: str, round_: str, mode: ev.Mode, contrast: str, attempt: int,
    scenario: tuple[Turn, ...],
) -> fx.TestScenario:  # fmt: skip
    behaviour = expected(pattern, mode, contrast)
    told = "" if mode == "bare" else behaviour
    return fx.TestScenario(dream, round_, mode, contrast, attempt, pattern, behaviour, told, scenario)
