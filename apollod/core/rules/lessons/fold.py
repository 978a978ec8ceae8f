"""Fold events into the lessons."""

from bisect import bisect_left, insort

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core.facts.holding import drift_of
from apollod.core.facts.lessons import rounds
from apollod.core.facts.lessons.events import Point, keys_of
from apollod.core.facts.lessons.rounds import nth
from apollod.core.facts.lessons.stages import Course, LessonState, Stage, after
from apollod.core.facts.lessons.state import CURVE_MAX, OUT, OUTSIDE, TIER, Lesson, LessonsState
from apollod.core.facts.quality.looking import LESSONS, OLDER
from apollod.core.kernel.composing import restore
from apollod.core.kernel.policy import Folds
from apollod.core.rules.lessons.standing import answer_of
from apollod.core.schedules import NO_FAILURE, SECOND_NS
from apollod.core.state import State


def _daemon_started(own: LessonsState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    _answered_at_last(own)


def _given(own: LessonsState, state: State, e: ev.LessonGiven, at_ns: int) -> None:
    own.number = max(own.number + 1, int(e.lesson[1:]))
    own.lessons[e.lesson] = lesson = Lesson(e.lesson, e.given, e.by, at_ns, example=e.example)
    if e.example:
        lesson.examples.append(e.example)
        own.of_line[e.example] = e.lesson
        own.offered.pop(e.example, None)
    own.queue[e.lesson] = None


def _begun(own: LessonsState, state: State, e: ev.LessonBegun, at_ns: int) -> None:
    lesson = own.lessons[e.lesson]
    own.queue.pop(e.lesson, None)
    own.asked_again = e.stage is Stage.AGAIN
    own.open = Course(e.lesson, e.stage, e.why, at_ns, lesson.rounds + 1, drift_from=drift_of(state.holding))
    lesson.budget_from = lesson.steps
    if e.stage is not Stage.AGAIN:
        lesson.state, lesson.reason = "practising", ""
    _answered_at_last(own)


def _worded(own: LessonsState, state: State, e: ev.LessonWorded, at_ns: int) -> None:
    lesson = own.lessons[e.lesson]
    lesson.told, lesson.worded = e.told, e.worded
    _stands(own, lesson)
    if (course := _open(own, e.lesson)) is not None:
        _go_on(own, course, "worded")


def _asked(own: LessonsState, state: State, e: ev.LessonAsked, at_ns: int) -> None:
    lesson, course = own.lessons[e.lesson], _open(own, e.lesson)
    if course is None or lesson.worded is None:
        return
    course.tried += rounds.tries(e.answers)
    if e.stage in rounds.PROVING:
        lesson.rounds = e.round
        if any(one.seed is not None for one in e.answers):
            lesson.proofs = course.proof = e.proof or e.round
    _answered_at_last(own)
    passed = rounds.outcome(own, lesson, e.stage, rounds.proof_of(lesson, course), course.tried, state.daemon.settings)
    if passed is not None:
        _decided(own, state, lesson, course, passed, at_ns)


def _decided(own: LessonsState, state: State, lesson: Lesson, course: Course, passed: bool, at_ns: int) -> None:
    """Go on to the next stage once all answers of this one are there."""
    found = rounds.tally(course.tried)
    lesson.before, lesson.after = rounds.figures(lesson, course.stage, found)
    course.todo, course.learned = rounds.practised_next(lesson), 0
    _go_on(own, course, "passed" if passed else "failed")


def _put_off(own: LessonsState, state: State, e: ev.LessonPutOff, at_ns: int) -> None:
    _leave(own, own.lessons[e.lesson], "waiting", "", at_ns)
    own.queue[e.lesson] = None


def _prepared(own: LessonsState, state: State, e: ev.LessonPrepared, at_ns: int) -> None:
    own.lessons[e.lesson].examples.append(e.example)
    if (course := _open(own, e.lesson)) is not None:
        course.examples[e.example] = e.wording
        del course.todo[:1]
        _go_on(own, course, "more" if e.more else "prepared")


def _practised(own: LessonsState, state: State, e: ev.LessonPractised, at_ns: int) -> None:
    lesson = own.lessons[e.lesson]
    lesson.practices += 1
    if e.step and e.step != lesson.last_step:  # one step may learn several
        lesson.steps += 1
        lesson.last_step = e.step
    if (course := _open(own, e.lesson)) is not None:
        course.learned += bool(e.step)
        if not e.example:
            del course.todo[:1]
        course.examples.pop(e.example, None)
        more_of_it = course.stage is Stage.LEARNING and course.examples
        left = "prepared" if more_of_it else "more" if course.todo else "prepared" if course.examples else "round over"
        _go_on(own, course, left)
    _answered_at_last(own)


def _known(own: LessonsState, state: State, e: ev.LessonKnown, at_ns: int) -> None:
    lesson = own.lessons[e.lesson]
    _leave(own, lesson, "known", "", at_ns)
    lesson.distance, lesson.drift, lesson.shown = 0, e.drift, e.step
    _set_due(own, state, lesson, at_ns)


def _kept(own: LessonsState, state: State, e: ev.LessonKept, at_ns: int) -> None:
    lesson = own.lessons[e.lesson]
    _point(lesson, e, at_ns)
    lesson.distance, lesson.shown = lesson.distance + 1, e.step
    _set_due(own, state, lesson, at_ns)
    _close(own, lesson, at_ns)


def _point(lesson: Lesson, e: ev.LessonKept | ev.LessonFading, at_ns: int) -> None:
    lesson.curve = [*lesson.curve[1 - CURVE_MAX :], Point(at_ns, e.step, *e.passed)]


def _fading(own: LessonsState, state: State, e: ev.LessonFading, at_ns: int) -> None:
    _point(own.lessons[e.lesson], e, at_ns)
    _leave(own, own.lessons[e.lesson], "fading", e.reason, at_ns)
    own.queue[e.lesson] = None


def _requested(own: LessonsState, state: State, e: ev.LessonRequested, at_ns: int) -> None:
    lesson = own.lessons[e.lesson]
    _leave(own, lesson, "waiting", f"{e.by} wants it practised", at_ns)
    own.queue[e.lesson] = None
    _stands(own, lesson)


def _replaced(own: LessonsState, state: State, e: ev.LessonReplaced, at_ns: int) -> None:
    lesson, newer = own.lessons[e.lesson], own.lessons[e.by]
    _leave(own, lesson, "replaced", f"lesson {e.by} has another answer", at_ns)
    lesson.replaced_by = e.by
    newer.not_these = tuple(dict.fromkeys((*newer.not_these, *lesson.not_these, answer_of(lesson))))
    _falls(own, lesson)
    _stands(own, newer)


def _example_replaced(own: LessonsState, state: State, e: ev.ExampleReplaced, at_ns: int) -> None:
    own.replaced[e.example] = e.lesson
    lesson = own.lessons[e.lesson]
    lesson.not_these = tuple(dict.fromkeys((*lesson.not_these, *filter(None, (e.answer,)))))


def _given_up(own: LessonsState, state: State, e: ev.LessonGivenUp, at_ns: int) -> None:
    lesson = own.lessons[e.lesson]
    _leave(own, lesson, "given up", e.reason, at_ns)
    lesson.drift = e.drift
    _falls(own, lesson)
    if e.by != "apollod":  # a person who takes it back wants the earlier answers again
        own.replaced = {example: id_ for example, id_ in own.replaced.items() if id_ != e.lesson}


def _failed(own: LessonsState, state: State, e: ev.LessonFailed, at_ns: int) -> None:
    own.retry, own.error = own.retry.after(at_ns, e.retry_s, e.attempt), e.reason
    own.refusals += e.cause not in OUTSIDE


def _rollback_started(own: LessonsState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    """Ask known lessons at once whose steps are taken back, and drop answers of weights that are gone."""
    undone = [one for one in own.lessons.values() if one.last_step > e.to]
    own.taken_back = {example: one.id for one in undone for example in one.examples}
    for lesson in undone:
        _due_now(own, lesson, at_ns)
    if (course := own.open) is not None and course.stage in rounds.ASKING:
        own.lessons[course.lesson].rounds = course.round
        course.round, course.tried, course.proof = course.round + 1, [], 0


def _looked(own: LessonsState, state: State, e: ev.QualityMeasured, at_ns: int) -> None:
    """Ask a lesson at once that failed in a look of the quality guard."""
    for id_, passed in (*e.figures.get(LESSONS, {}).items(), *e.figures.get(OLDER, {}).items()):
        if (lesson := own.lessons.get(id_)) is None or passed is None:
            continue
        if passed < 1.0:
            _due_now(own, lesson, at_ns)
        else:
            lesson.shown = e.step


def _look_begun(own: LessonsState, state: State, e: ev.QualityRequested, at_ns: int) -> None:
    for id_ in e.lessons:
        own.lessons[id_].looked = e.number


def _due_now(own: LessonsState, lesson: Lesson, at_ns: int) -> None:
    """Ask the lesson again at once, if it is known."""
    if lesson.state == "known":
        _take_due(own, lesson)
        lesson.due_ns = at_ns
        insort(own.due, (at_ns, _number(lesson)))


def _step_started(own: LessonsState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    """Note the new step of lessons whose steps were taken back and are repeated."""
    if not own.taken_back or not e.again_of:
        return
    for example in ev.all_examples(e):
        if (id_ := own.taken_back.pop(example, "")) in own.lessons:
            own.lessons[id_].last_step = e.step


def _example_held(own: LessonsState, state: State, e: ev.ExampleHeld, at_ns: int) -> None:
    """Mark the lesson of an example that the guard or a person holds: the lesson would have it learned again."""
    for lesson in own.lessons.values() if e.tier == TIER else ():
        if e.example in lesson.examples and lesson.state not in OUT:
            own.harmful[lesson.id] = e.reason


def _accepted(own: LessonsState, state: State, e: ev.ExampleAccepted, at_ns: int) -> None:
    if e.lesson is not None:
        own.offered[e.example] = e.lesson


def _not_approved(
    own: LessonsState, state: State, e: ev.ExampleDeclined | ev.ExampleEdited | ev.ExampleExpired, at_ns: int
) -> None:
    for example in e.examples if isinstance(e, ev.ExampleExpired) else (e.example,):
        own.offered.pop(example, None)


def _left_out(own: LessonsState, state: State, e: ev.LessonsLeftOut, at_ns: int) -> None:
    for example in e.examples:
        own.offered.pop(example, None)


def _journal_carried(own: LessonsState, state: State, e: ev.JournalCarried, at_ns: int) -> None:
    """Forget the offers of lines that are not held any more: the journal takes them over as accepted."""
    own.offered = {example: given for example, given in own.offered.items() if example in state.review.held}


def _carried(own: LessonsState, state: State, e: ev.LessonCarried, at_ns: int) -> None:
    """Set the state that the archive ended with, after the events that were taken over."""
    lesson = own.lessons[e.lesson]
    restore(lesson, e)
    if e.due_ns:
        insort(own.due, (e.due_ns, _number(lesson)))
    if e.due_step:
        insort(own.due_steps, (e.due_step, _number(lesson)))
    if e.state in OUT:
        _falls(own, lesson)


def _all_carried(own: LessonsState, state: State, e: ev.LessonsCarried, at_ns: int) -> None:
    own.number, own.queue, own.asked_again = e.number, dict.fromkeys(e.queue), e.asked_again
    own.harmful = dict(e.harmful)
    if (open_ := e.open) is not None:
        own.open = replace(open_, tried=list(open_.tried), todo=list(open_.todo), examples=dict(open_.examples))


def _open(own: LessonsState, lesson: str) -> Course | None:
    return own.open if own.open is not None and own.open.lesson == lesson else None


def _go_on(own: LessonsState, course: Course, happened: str) -> None:
    course.stage, course.tried, course.proof = after(course.stage, happened), [], 0
    course.round = own.lessons[course.lesson].rounds + 1


def _leave(own: LessonsState, lesson: Lesson, state: LessonState, reason: str, at_ns: int) -> None:
    """Move the lesson to another state, in which it is neither under way, nor waiting, nor due."""
    lesson.state, lesson.reason = state, reason
    own.queue.pop(lesson.id, None)
    own.harmful.pop(lesson.id, None)
    _take_due(own, lesson)
    _close(own, lesson, at_ns)


def _close(own: LessonsState, lesson: Lesson, at_ns: int) -> None:
    if (course := _open(own, lesson.id)) is not None:
        lesson.seconds += max(0, at_ns - course.since_ns) / SECOND_NS
        lesson.practices += len(course.examples)  # no step will learn these: their numbers are used up
        own.open = None
        _answered_at_last(own)


def _stands(own: LessonsState, lesson: Lesson) -> None:
    for key in keys_of(lesson.worded):
        own.by_key.setdefault(key, lesson.id)


def _falls(own: LessonsState, lesson: Lesson) -> None:
    for key in keys_of(lesson.worded):
        if own.by_key.get(key) == lesson.id:
            del own.by_key[key]


def _set_due(own: LessonsState, state: State, lesson: Lesson, at_ns: int) -> None:
    """Set the time or step at which a known lesson is asked again."""
    _take_due(own, lesson)
    settings = state.daemon.settings
    distance = nth(settings.lessons.ask_again, lesson.distance) if settings is not None else None
    if distance is None:
        return
    if distance.steps:
        lesson.due_step = state.training.version + distance.steps
        insort(own.due_steps, (lesson.due_step, _number(lesson)))
    else:
        lesson.due_ns = at_ns + distance.seconds * SECOND_NS
        insort(own.due, (lesson.due_ns, _number(lesson)))


def _night_opened(own: LessonsState, state: State, e: ev.NightOpened, at_ns: int) -> None:
    settings = state.daemon.settings
    if settings is None or not settings.lessons.nightly:
        return
    for lesson in own.lessons.values():
        if lesson.state == "known":
            _take_due(own, lesson)
            lesson.due_ns = at_ns
            insort(own.due, (at_ns, _number(lesson)))


def _take_due(own: LessonsState, lesson: Lesson) -> None:
    for due, at in ((own.due, lesson.due_ns), (own.due_steps, lesson.due_step)):
        if at:
            del due[bisect_left(due, (at, _number(lesson)))]
    lesson.due_ns = lesson.due_step = 0


def _number(lesson: Lesson) -> int:
    return int(lesson.id[1:])


def _answered_at_last(own: LessonsState) -> None:
    own.retry, own.refusals, own.error = NO_FAILURE, 0, ""


FOLDS: Folds = {
    ev.NightOpened: _night_opened,
    ev.DaemonStarted: _daemon_started,
    ev.LessonGiven: _given,
    ev.LessonBegun: _begun,
    ev.LessonWorded: _worded,
    ev.LessonAsked: _asked,
    ev.LessonPutOff: _put_off,
    ev.LessonPrepared: _prepared,
    ev.LessonPractised: _practised,
    ev.LessonKnown: _known,
    ev.LessonKept: _kept,
    ev.LessonFading: _fading,
    ev.LessonRequested: _requested,
    ev.LessonReplaced: _replaced,
    ev.ExampleReplaced: _example_replaced,
    ev.LessonGivenUp: _given_up,
    ev.LessonFailed: _failed,
    ev.LessonCarried: _carried,
    ev.LessonsCarried: _all_carried,
    ev.ExampleAccepted: _accepted,
    ev.ExampleHeld: _example_held,
    ev.ExampleDeclined: _not_approved,
    ev.ExampleEdited: _not_approved,
    ev.ExampleExpired: _not_approved,
    ev.LessonsLeftOut: _left_out,
    ev.JournalCarried: _journal_carried,
    ev.QualityRequested: _look_begun,
    ev.QualityMeasured: _looked,
    ev.RollbackStarted: _rollback_started,
    ev.StepStarted: _step_started,
}
