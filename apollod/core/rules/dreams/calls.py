"""The calls that a dream waits for, as effects, and what follows from the answer to each."""

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.course import kinds_of, open_cases
from apollod.core.facts.dreams.events import LEARNED_FROM
from apollod.core.facts.dreams.held_out_rounds import Case
from apollod.core.facts.dreams.scenario import Dreamt, Turn, collapse, likeness
from apollod.core.facts.dreams.state import CALLS, NOBODY, OUTSIDE, Course, Dream, DreamsState, Stage
from apollod.core.facts.intake.events import Removed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.intake.accepting import accepted, begin_encoding, leaked
from apollod.core.schedules import RETRY_MAX_S, backoff_s
from apollod.core.settings import DreamSettings, PatternSettings
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


# Handles the answer to each call of a dream.
#
# Law: only answers judged good are trained; a tested scenario is never trained, and a trained one is never tested. An
# answer that is no longer awaited changes nothing.

ALIKE = 0.9
"""likeness from which two scenarios count as the same"""
CHECK_ATTEMPTS = 10
"""attempts of a check that cannot be run: about a quarter of an hour"""


class _Asked(NamedTuple):
    """The dream that awaits an answer, its pattern, and the settings."""

    dream: Dream
    course: Course
    settings: DreamSettings


def _asked(state: State, dream: str, *stages: Stage) -> _Asked | None:
    """The dream in one of these stages that awaits an answer; None if none does."""
    own, settings = state.dreams, state.daemon.settings
    if own.open is None or settings is None or own.open.id != dream or own.open.stage not in stages:
        return None
    return _Asked(own.open, own.courses[own.open.pattern], settings.dream)


def _on_imagined(state: State, input_: inp.ScenarioImagined, now_ns: int) -> Outcome:
    """Accept a scenario that is new, gives nothing away, and is not a seed; else ask for another one."""
    imagined = input_.imagined
    if (asked := _asked(state, imagined.dream, Stage.IMAGINING)) is None:
        return nothing()
    dream, course, settings = asked
    if input_.leak:
        return _again(state, settings, "leak", input_.leak, tokens=imagined.tokens)
    if input_.echo:
        return _again(state, settings, "echo", input_.echo, tokens=imagined.tokens)
    tested = [*(one.sketch for one in course.apart.values()), *course.varied]
    learned_from = dream.purpose in LEARNED_FROM
    if learned_from and any(likeness(imagined.sketch, one) >= ALIKE for one in tested):
        return _again(state, settings, "held-out", "tests are made with this scenario", tokens=imagined.tokens)
    if not learned_from and any(likeness(imagined.sketch, one) >= ALIKE for one in course.practised):
        practised = "the scenario was practised, so a test with it would say nothing"
        return _again(state, settings, "repeats", practised, tokens=imagined.tokens)
    same = course.practised if learned_from else tested
    if any(likeness(imagined.sketch, one) >= ALIKE for one in same):
        return _again(state, settings, "repeats", "the imagination repeats itself", tokens=imagined.tokens)
    over = dream.purpose in ("held-out", "situation")
    return Outcome([imagined, *([ev.DreamSettled(dream=dream.id)] if over else [])], [])


def _on_answered(state: State, input_: inp.DreamAnswered, now_ns: int) -> Outcome:
    return Outcome([] if _asked(state, input_.dream, Stage.ANSWERING) is None else [input_], [])


def _on_verdict(state: State, input_: inp.DreamVerdict, now_ns: int) -> Outcome:
    """Learn a good answer, stripped; judge the better answer in place of a bad one, once."""
    if (asked := _asked(state, input_.judged.dream, Stage.JUDGING, Stage.JUDGING_BETTER)) is None:
        return nothing()
    dream, course, _ = asked
    if input_.stage != dream.stage:
        return nothing()  # the call was made twice
    second = dream.stage is Stage.JUDGING_BETTER
    better, verdict = input_.judged.better, input_.judged.verdict
    judged = msgspec.structs.replace(input_.judged, answer=dream.answer if second else "", better=None)
    if dream.purpose == "contrast" and verdict == "good":
        return Outcome([judged, ev.DreamSettled(dream=dream.id)], [])
    if verdict == "good":
        return _learn(state, dream, course, judged, input_)
    if verdict == "bad" and better is not None and not second and dream.purpose != "contrast":
        return Outcome([msgspec.structs.replace(judged, better=better)], [])
    why = f"the {'better answer' if second else 'answer'} is called {verdict}"
    why += "" if second or verdict == "unsure" else ", and no better one was written"
    return Outcome([judged, ev.DreamAbandoned(dream=dream.id, reason=f"{why}: {judged.reason}")], [])


def _learn(state: State, dream: Dream, course: Course, judged: ev.DreamJudged, input_: inp.DreamVerdict) -> Outcome:
    line = input_.line
    if line is None or not line.example or input_.known or leaked(line):
        why = "what it teaches was learned before" if line and line.example else (line.reason if line else "no record")
        why = (leaked(line) if line else "") or why
        return Outcome([judged, ev.DreamAbandoned(dream=dream.id, reason=f"{why}")], [])
    removed = _stripped(course.pattern, dream)
    learned = accepted(line, f"dream:{dream.id}", "dream", removed=removed, teacher=input_.teacher)
    events = [msgspec.structs.replace(judged, example=line.example), learned]
    return Outcome(events, begin_encoding(state, [(line.example, "dream")]))


def _stripped(pattern: PatternSettings, dream: Dream) -> tuple[Removed, ...]:
    """Texts that the model was told and does not read while it learns, with their place: the system message, or its
    end. In contrast the text by which it is judged remains, at the very end; only the text before it is removed."""
    left = "" if dream.mode == "bare" else expected(pattern, dream.mode, dream.contrast)
    told, around = told_then(pattern, dream).removesuffix(left).removesuffix(JOINT), dream.surrounding
    if not told:
        return ()
    if around.system is not None:
        return (Removed(place=0, at=len(around.system), text=JOINT + told, why="system", role="system"),)
    if left:
        return (Removed(place=0, at=0, text=told + JOINT, why="system", role="system"),)
    return (Removed(place=0, at=-1, text=told, why="system", role="system"),)


def _on_step_done(state: State, input_: inp.StepDone, now_ns: int) -> Outcome:
    """Complete the dream whose example the step learned, in the same transaction as the step's result."""
    own, running = state.dreams, state.training.running
    if own.open is None or not own.open.example or input_.replay or running is None or running.step != input_.step:
        return nothing()
    dream = own.open
    if dream.stage is not Stage.LEARNING or dream.example not in running.examples:
        return nothing()
    if not input_.applied and not input_.known:
        return nothing()  # it does not wait any more: see `_learning`
    trained = ev.DreamTrained(dream=dream.id, example=dream.example, step=input_.step)
    return Outcome([trained, ev.DreamSettled(dream=dream.id), *_collapsed(own, dream)], [])


def _collapsed(own: DreamsState, dream: Dream) -> list[ev.Event]:
    """Stop dreaming if the last practices, including this one, have collapsed."""
    course = own.courses[dream.pattern]
    assert dream.sketch is not None
    found = collapse([*course.recent, Dreamt(dream.sketch, dream.answer_sketch, dream.logprob)], course.earliest)
    if not found or own.stopped:
        return []
    return [ev.DreamingStopped(by="guard", reason=f"dreams of {dream.pattern} collapsed: {found}")]


def _on_tested(state: State, input_: inp.DreamTested, now_ns: int) -> Outcome:
    if input_.round:
        return Outcome([input_] if _case_asked(state.dreams, input_) else [], [])
    asked = _asked(state, input_.dream, Stage.TESTING, Stage.TESTING_CONTRAST)
    over = asked is not None and asked.dream.stage is Stage.TESTING_CONTRAST
    if asked is None or (input_.mode == "contrast") != over:
        return nothing()  # the call was made twice
    return Outcome([input_, *([ev.DreamSettled(dream=input_.dream)] if over else [])], [])


def _case_asked(own: DreamsState, input_: inp.DreamTested) -> bool:
    """True if its pattern waits for this test of a round. It may have been requested before a dream of another pattern
    began."""
    course = own.courses.get(input_.pattern)
    wanted = Case(input_.round, input_.dream, input_.mode, input_.contrast, input_.sample)
    return course is not None and input_.dream in course.apart and wanted in open_cases(course, own)


def _on_failed(state: State, input_: inp.DreamCallFailed, now_ns: int) -> Outcome:
    """The call is made again, or its dream abandoned. A test of a round is repeated without limit."""
    own, settings = state.dreams, state.daemon.settings
    if settings is None or input_.attempt != own.retry.failures + 1:
        return nothing()
    if (given_up := _untestable(state, settings.dream, input_)) is not None:
        return given_up
    open_ = own.open is not None and own.open.id == input_.dream and own.open.stage in CALLS
    if not open_ and (own.open is not None or not input_.stage.startswith("round")):
        return nothing()
    return _again(
        state, settings.dream, input_.cause, input_.reason, input_.retry_after_s, input_.dream, input_.stage,
        input_.tokens,
    )  # fmt: skip


def _untestable(state: State, settings: DreamSettings, input_: inp.DreamCallFailed) -> Outcome | None:
    """Count a test of a round as failed if it cannot be made, unless the endpoint is the cause; None if it is tried
    again."""
    own = state.dreams
    if own.open is not None or not _too_many(own, settings, input_.cause):
        return None
    for name, course in own.courses.items():
        open_ = open_cases(course, own) if input_.dream in course.apart else []
        for case in (one for one in open_ if (one.dream, one.mode, one.sample) == (input_.dream, *input_.case)):
            tested = ev.DreamTested(
                **case._asdict(), pattern=name, passed=False, answer="", by=NOBODY, reason=one_line(input_.reason),
                surrounding=course.apart[case.dream].surrounding.kind,
            )  # fmt: skip
            return Outcome([tested], [])
    return None


def _again(
    state: State, settings: DreamSettings, cause: ev.Cause, reason: str, retry_after_s: float = 0.0, dream: str = "",
    stage: str = "", tokens: int = 0,
) -> Outcome:  # fmt: skip
    """Repeat the call: soon if another answer may come, later if something outside has to recover."""
    own = state.dreams
    attempt = own.retry.failures + 1
    if not dream and own.open is not None:
        dream, stage = own.open.id, own.open.stage
    later = own.open is None or cause in OUTSIDE or cause == "check"
    retry_s = min(RETRY_MAX_S, max(backoff_s(attempt, RETRY_MAX_S) if later else 0.0, retry_after_s))
    failed = ev.DreamFailed(
        dream=dream, stage=stage, attempt=attempt, cause=cause, reason=one_line(reason), retry_s=retry_s, tokens=tokens,
    )  # fmt: skip
    if own.open is None or not _too_many(own, settings, cause):
        return Outcome([failed], [])
    why = f"{stage} failed {attempt} times, the last time because: {one_line(reason)}"
    return Outcome([failed, ev.DreamAbandoned(dream=dream, reason=why)], [])


def _too_many(own: DreamsState, settings: DreamSettings, cause: ev.Cause) -> bool:
    """True if one more failure reaches the limit. A check may depend on a service that is restarting, so its limit is
    higher."""
    if cause in OUTSIDE:
        return False
    return own.refusals + 1 >= (max(CHECK_ATTEMPTS, settings.attempts) if cause == "check" else settings.attempts)


ANSWERS: Handlers = {
    inp.ScenarioImagined: _on_imagined,
    inp.DreamAnswered: _on_answered,
    inp.DreamVerdict: _on_verdict,
    inp.DreamTested: _on_tested,
    inp.DreamCallFailed: _on_failed,
    inp.StepDone: _on_step_done,
}
