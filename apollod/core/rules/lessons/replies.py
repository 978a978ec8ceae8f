"""Handles the answer to each call for a lesson.

Law: nothing is trained before the told model answers and the bare one does not; a held-out wording is never trained;
only answers to held-out wordings decide whether a lesson is known. An answer that is not awaited changes nothing.
"""

from hashlib import blake2b

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.holding import drift_of
from apollod.core.facts.lessons import rounds
from apollod.core.facts.lessons.stages import Course, Stage, Tried
from apollod.core.facts.lessons.state import OUTSIDE, TIER, Lesson
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.intake.accepting import accepted, begin_encoding, leaked
from apollod.core.rules.lessons.standing import alike, answer_of, contradicted, outdated, replaced, rivals
from apollod.core.schedules import RETRY_MAX_S, SECOND_NS, backoff_s
from apollod.core.state import State

REFUSALS_MAX = 3
"""failures of one call after which it is given up"""


def under_way(state: State, lesson: str, *stages: Stage) -> tuple[Lesson, Course] | None:
    """The lesson under way, if it is this one and in one of these stages."""
    own = state.lessons
    if own.open is None or own.open.lesson != lesson or own.open.stage not in stages:
        return None
    return own.lessons[lesson], own.open


def given_up(state: State, lesson: Lesson, reason: str, now_ns: int, by: str = "apollod") -> ev.LessonGivenUp:
    """The event that gives a lesson up, with its figures so far."""
    seconds, drift = spent_by(state, lesson, now_ns)
    return ev.LessonGivenUp(
        lesson=lesson.id, by=by, reason=one_line(reason), before=dict(lesson.before), after=lesson.after,
        steps=lesson.steps, drift=drift, seconds=seconds,
    )  # fmt: skip


def spent_by(state: State, lesson: Lesson, now_ns: int) -> tuple[float, float]:
    """Seconds of the course under way and drift in it, nats a token; 0 s and the last drift if the lesson is not under
    way."""
    course = state.lessons.open
    if course is None or course.lesson != lesson.id:
        return 0.0, lesson.drift
    return max(0, now_ns - course.since_ns) / SECOND_NS, drift_of(state.holding) - course.drift_from


def _on_worded(state: State, input_: inp.LessonWorded, now_ns: int) -> Outcome:
    """Record the wordings; the lesson replaces older ones that have another answer to its question."""
    if (found := under_way(state, input_.lesson, Stage.WORDING)) is None:
        return nothing()
    lesson, worded = found[0], input_.worded
    events: list[ev.Event] = [
        composed(ev.LessonWorded, input_, lesson=lesson.id, worded=worded)
    ]  # fmt: skip
    if not worded.held_out or not worded.practice:
        missing = "held-out" if worded.practice else "practice"
        return Outcome([*events, given_up(state, lesson, f"there is no {missing} wording of it", now_ns)], [])
    older = rivals(state.lessons, lesson.id, worded)
    if (same := next((one for one in older if alike(answer_of(one), worded.answer)), None)) is not None:
        events.append(given_up(state, lesson, f"lesson {same.id} teaches the same", now_ns))
        if same.state == "known":
            events.append(ev.LessonRequested(lesson=same.id, by=lesson.by))
        return Outcome(events, [])
    for one in outdated(state.lessons, lesson, worded, input_.replaces):
        events += replaced(state, one, lesson.id)
    return Outcome([*events, *contradicted(state, lesson, input_.contradicted)], [])


def _on_asked(state: State, input_: inp.LessonAsked, now_ns: int) -> Outcome:
    """Record the answers and, once they decide the stage, the consequences."""
    if (found := under_way(state, input_.lesson, *rounds.ASKING)) is None:
        return nothing()
    lesson, course = found
    assert lesson.worded is not None
    if (input_.stage, input_.round, input_.made) != (course.stage, course.round, len(course.tried)):
        return nothing()  # answers of weights that are gone, or answered twice
    wanted = [(one.wording, one.seed) for one in rounds.asks(lesson, lesson.worded, course)]
    if wanted != [(one.wording, one.seed) for one in input_.answers]:
        return again(state, "nonsense", "the answers are not those that were asked for", now_ns)
    if _is_stale(state, lesson, input_.weights_version):
        why = f"the engine answered with weights {input_.weights_version}, and step {lesson.last_step} taught it since"
        return again(state, "endpoint", why, now_ns)
    proof, sampled = rounds.proof_of(lesson, course), any(one.seed is not None for one in input_.answers)
    asked = composed(
        ev.LessonAsked, input_, lesson=lesson.id, stage=course.stage, round=course.round,
        proof=proof if sampled else 0,
    )  # fmt: skip
    tried = [*course.tried, *rounds.tries(input_.answers)]
    passed = rounds.outcome(state.lessons, lesson, course.stage, proof, tried, state.daemon.settings)
    return Outcome([asked, *(_follows(state, lesson, course, tried, passed, now_ns) if passed is not None else ())], [])


def _is_stale(state: State, lesson: Lesson, answered_by: int | None) -> bool:
    """True if the engine did not know of the last step that taught the lesson: tensors that it derives from weights,
    and prefixes in its cache, are older. Step numbers are never reused."""
    return answered_by is not None and answered_by < lesson.last_step <= state.training.version


def _follows(
    state: State, lesson: Lesson, course: Course, tried: list[Tried], passed: bool, now_ns: int
) -> list[ev.Event]:
    """Consequences of the last answers of a stage, besides the next stage."""
    found, settings = rounds.tally(tried), state.daemon.settings
    worded = lesson.worded
    assert settings is not None and worded is not None
    seconds, drift = spent_by(state, lesson, now_ns)
    before, after = rounds.figures(lesson, course.stage, found)
    lesson = replace(lesson, before=before, after=after)
    match course.stage:
        case Stage.BASELINE | Stage.TESTING if passed:
            return [
                ev.LessonKnown(
                    lesson=lesson.id, step=state.training.version, before=before, after=found, steps=lesson.steps,
                    drift=drift, seconds=seconds, prompt=worded.practice[0].prompt, asks=len(tried),
                )
            ]  # fmt: skip
        case Stage.TESTING if why := rounds.spent(lesson, drift, settings.lessons):
            return [given_up(state, lesson, f"{why}; {rounds.described(tried)}", now_ns)]
        case Stage.TOLD if not passed:
            why = f"the model cannot answer it even when told: {rounds.described(tried)}"
            return [given_up(state, lesson, why, now_ns)]
        case Stage.AGAIN if passed:
            return [ev.LessonKept(lesson=lesson.id, step=state.training.version, passed=found)]
        case Stage.AGAIN:
            why = f"asked again, {rounds.described(tried)}"
            return [ev.LessonFading(lesson=lesson.id, reason=why, step=state.training.version, passed=found)]
    return []


def _on_prepared(state: State, input_: inp.LessonPrepared, now_ns: int) -> Outcome:
    """Accept the conversation as a new example, even if its text was learned before."""
    if (found := under_way(state, input_.lesson, Stage.PREPARING)) is None:
        return nothing()
    (lesson, course), line = found, input_.line
    if input_.number != next_practice(lesson, course):
        return nothing()
    if why := leaked(line) or (line.reason if not line.example else ""):
        return Outcome(missed(state, why, now_ns), [])
    example = example_of(line.example, lesson.id, input_.number)
    more = len(course.todo) > 1
    prepared = composed(ev.LessonPrepared, input_, wording=course.todo[0], example=example, more=more)
    taken = accepted(
        line, f"lesson:{lesson.id}", TIER, input_.number, example=example, teacher=input_.teacher, responses=(),
        signature="", question="",
    )  # fmt: skip
    return Outcome([prepared, taken], begin_encoding(state, [(example, TIER)]))


def next_practice(lesson: Lesson, course: Course) -> int:
    """Number of the practice to prepare next, from 1 in each lesson."""
    return lesson.practices + len(course.examples) + 1


def example_of(record: str, lesson: str, number: int) -> str:
    """Id of a practice: hex, different for each practice of the same record (given by content id)."""
    return blake2b(f"{record} {lesson} {number}".encode(), digest_size=16, person=b"apollod.lesson").hexdigest()


def missed(state: State, reason: str, now_ns: int, example: str = "") -> list[ev.Event]:
    """Record a practice of the lesson under way as not learned: this `example`, or the one to be prepared. A round
    without any step ends the lesson."""
    course = state.lessons.open
    assert course is not None
    wording = course.examples[example] if example else course.todo[0]
    events: list[ev.Event] = [
        ev.LessonPractised(lesson=course.lesson, wording=wording, example=example, step=0, reason=one_line(reason))
    ]
    if len(course.todo) + len(course.examples) == 1 and not course.learned:
        why = f"none of its practices was learned, the last one because: {reason}"
        events.append(given_up(state, state.lessons.lessons[course.lesson], why, now_ns))
    return events


def _on_step_done(state: State, input_: inp.StepDone, now_ns: int) -> Outcome:
    """Record which practices the step learned, in the same transaction as its result."""
    course, running = state.lessons.open, state.training.running
    if course is None or input_.replay or running is None or running.step != input_.step:
        return nothing()
    if not (input_.applied or input_.known):
        return nothing()  # after a step that wrote nothing see `core.rules.lessons.policy`
    learned = [one for one in course.examples if one in running.examples]
    practised: list[ev.Event] = [
        ev.LessonPractised(
            lesson=course.lesson, wording=course.examples[one], example=one, step=input_.step, reason=input_.note
        )
        for one in learned
    ]
    return Outcome(practised, [])


def _on_failed(state: State, input_: inp.LessonCallFailed, now_ns: int) -> Outcome:
    own = state.lessons
    if under_way(state, input_.lesson, input_.stage) is None or input_.attempt != own.retry.failures + 1:
        return nothing()
    return again(state, input_.cause, input_.reason, now_ns, input_.retry_after_s, input_.tokens)


def again(
    state: State, cause: ev.Cause, reason: str, now_ns: int, retry_after_s: float = 0.0, tokens: int = 0
) -> Outcome:
    """Repeat the call after a back-off, or give it up."""
    own, course = state.lessons, state.lessons.open
    assert course is not None
    attempt = own.retry.failures + 1
    retry_s = min(RETRY_MAX_S, max(backoff_s(attempt, RETRY_MAX_S), retry_after_s))
    failed = ev.LessonFailed(
        lesson=course.lesson, stage=course.stage, attempt=attempt, cause=cause, reason=one_line(reason),
        retry_s=retry_s, tokens=tokens,
    )  # fmt: skip
    if cause in OUTSIDE or own.refusals + 1 < REFUSALS_MAX:
        return Outcome([failed], [])
    if course.stage is Stage.PREPARING:
        return Outcome([failed, *missed(state, reason, now_ns)], [])
    why = f"{course.stage} failed {own.refusals + 1} times, the last time because: {reason}"
    return Outcome([failed, given_up(state, own.lessons[course.lesson], why, now_ns)], [])


ANSWERS: Handlers = {
    inp.LessonWorded: _on_worded,
    inp.LessonAsked: _on_asked,
    inp.LessonPrepared: _on_prepared,
    inp.LessonCallFailed: _on_failed,
    inp.StepDone: _on_step_done,
}
