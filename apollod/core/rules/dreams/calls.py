"""The calls that a dream waits for, as effects."""

from msgspec.structs import replace

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core.facts.dreams.course import kinds_of
from apollod.core.facts.dreams.held_out_rounds import Case
from apollod.core.facts.dreams.machine import Stage
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.dreams.state import Course, Dream, DreamsState
from apollod.core.settings import PatternSettings
from apollod.core.state import State
from apollod.core.surroundings import JOINT, Surrounding

NOT_HERE = "To do that would be wrong in this conversation: a good answer does what was asked for, without it."
"""text for the judge only, about a situation in which a behaviour would be wrong"""
TOLD_MAX = 6
"""most held-out scenarios shown to the imagination of the next one"""
TOLD_CHARACTERS = 6_000
"""most characters of them, beyond the last one"""
BESIDE_CHARACTERS = 8_000
"""most characters of the instructions of other patterns"""


def call_of(state: State, dream: Dream) -> fx.Effect:
    """The call that the dream under way waits for."""
    own = state.dreams
    course, attempt = own.courses[dream.pattern], own.retry.failures + 1
    pattern, around = course.pattern, dream.surrounding
    match dream.stage:
        case Stage.IMAGINING:
            settings = state.daemon.settings
            return fx.ImagineScenario(
                dream.id, attempt, pattern, dream.purpose, int(dream.id[1:]),
                unlike=_existing(course, dream), last_seeds=course.last_seeds, surfaced=dict(course.surfaced),
                variation_of=course.lately[-1] if dream.purpose == "variation" and course.lately else (),
                surrounding=dream.drawn, beside=told_beside(own, pattern.name),
                kinds=kinds_of(course, settings.dream) if settings is not None else (dream.drawn.kind,),
            )  # fmt: skip
        case Stage.ANSWERING:
            told = (told_beside(own, pattern.name), expected(pattern, dream.mode, dream.contrast))
            return fx.AnswerScenario(dream.id, attempt, dream.scenario, JOINT.join(filter(None, told)), around)
        case Stage.TESTING | Stage.TESTING_CONTRAST:
            mode: ev.Mode = "bare" if dream.stage is Stage.TESTING else "contrast"
            contrast = dream.contrast if mode == "contrast" else ""
            return _test(pattern, dream.id, "", mode, contrast, attempt, dream.scenario, around)
    return fx.JudgeDream(
        dream.id, attempt, dream.stage, pattern, dream.mode, expected(pattern, dream.mode, dream.contrast),
        dream.scenario, dream.answer, told_then(pattern, dream), around,
    )  # fmt: skip


def told_then(pattern: PatternSettings, dream: Dream) -> str:
    """Text that the model was told when it answered; for a dream begun by an earlier version, its instruction."""
    return dream.told or expected(pattern, dream.mode, dream.contrast)


def told_beside(own: DreamsState, pattern: str) -> str:
    """Text before the instruction of `pattern` when the model gives an answer to learn: instructions of other patterns
    that it has practised, or will practise if the answer is held until then; only the last ones if they are long. An
    answer without them would teach it not to follow them. Contradictions are not detected here: the last instruction
    counts."""
    others = [
        one
        for name, one in own.courses.items()
        if name != pattern and one.phase != "retired" and (one.taught or (own.holds and one.baseline))
    ]
    told, left = list[str](), BESIDE_CHARACTERS
    for text in reversed([one.pattern.instruction for one in others]):
        if (left := left - len(text)) >= 0:
            told.append(text)
    return JOINT.join(reversed(told))


def _existing(course: Course, dream: Dream) -> tuple[tuple[Turn, ...], ...]:
    """Latest scenarios of the same sort, which the imagination is not to repeat. Tested scenarios are shown only when
    another one of their sort is imagined."""
    sorts = {"held-out": course.held, "situation": course.situations}
    if dream.purpose not in sorts:
        return tuple(course.lately)
    told, left = list[tuple[Turn, ...]](), TOLD_CHARACTERS
    for held in list(sorts[dream.purpose].values())[: -TOLD_MAX - 1 : -1]:
        left -= sum(len(turn.content) for turn in held.scenario)
        if told and left < 0:
            break
        told.append(held.scenario)
    return tuple(reversed(told))


def expected(pattern: PatternSettings, mode: ev.Mode, contrast: str) -> str:
    """Text by which an answer is judged, and which a told model reads."""
    if mode == "situation":
        return f"{pattern.instruction}\n\n{NOT_HERE}"
    return contrast if mode == "contrast" else pattern.instruction


def case_call(course: Course, case: Case, attempts: int) -> fx.TestScenario:
    held = course.apart[case.dream]
    test = _test(
        course.pattern, case.dream, case.round, case.mode, case.contrast, attempts + 1, held.scenario, held.surrounding
    )  # fmt: skip
    return replace(test, sample=case.sample)


def _test(
    pattern: PatternSettings, dream: str, round_: str, mode: ev.Mode, contrast: str, attempt: int,
    scenario: tuple[Turn, ...], around: Surrounding,
) -> fx.TestScenario:  # fmt: skip
    behaviour = expected(pattern, mode, contrast)
    told = behaviour if mode in ("told", "contrast") else ""
    return fx.TestScenario(dream, round_, mode, contrast, attempt, pattern, behaviour, told, scenario, around)
