"""How facts change what is dreamt."""

from collections.abc import Sequence
from typing import Any

from apollod.core.daemon.events import DaemonStarted
from apollod.core.dreams.collapse import Dreamt
from apollod.core.dreams.course import complete, enough, rests, tests_of
from apollod.core.dreams.events import (
    DreamAbandoned,
    DreamAnswered,
    DreamFailed,
    DreamImagined,
    DreamingCarried,
    DreamingStarted,
    DreamingStopped,
    DreamJudged,
    DreamRequested,
    DreamSettled,
    DreamTested,
    DreamTrained,
    EngineBusy,
    EngineIdle,
    PatternAdded,
    PatternCarried,
    PatternRetired,
    PatternSettled,
    PatternUnsettled,
    ScenariosCarried,
)
from apollod.core.dreams.machine import after
from apollod.core.dreams.state import (
    KEPT,
    NOBODY,
    OUTSIDE,
    RECENT,
    SHARE_SPAN,
    Course,
    Dream,
    DreamsState,
    HeldOut,
    Tried,
    Wanted,
)
from apollod.core.kernel.folding import Folds
from apollod.core.rollback.events import RollbackStarted
from apollod.core.schedules import DAY_NS, SECOND_NS
from apollod.core.state import State
from apollod.core.training.events import StepCompleted, all_examples

LATELY = 3
"""practised scenarios that the imagination is told of"""


def _daemon_started(own: DreamsState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.users, own.users_reason = True, ""
    _answered_at_last(own)


def _added(own: DreamsState, state: State, e: PatternAdded, at_ns: int) -> None:
    """What was practised and tested under this name before stays known: neither becomes the other."""
    before = own.courses.get(e.pattern.name)
    tested = [*before.varied, *(one.sketch for one in before.held.values())] if before else []
    own.courses[e.pattern.name] = Course(
        e.pattern, e.by, at_ns, practised=before.practised if before else [], varied=tested
    )
    _look_over(own)


def _settled(own: DreamsState, state: State, e: PatternSettled, at_ns: int) -> None:
    course = own.courses[e.pattern]
    course.phase, course.reason, course.settled_at = "settled", "", e.step
    own.settlings += 1
    own.last_settled, course.rechecked = e.pattern, own.settlings
    _look_over(own)


def _unsettled(own: DreamsState, state: State, e: PatternUnsettled, at_ns: int) -> None:
    course = own.courses[e.pattern]
    course.phase, course.reason, course.taken_back = "active", e.reason, False
    course.bare, course.contrast, course.misses = [], [], 0
    course.before = (course.practices, course.tokens, course.days)
    if e.harmed_by:
        course.harmed_by[e.harmed_by] = course.harmed_by.get(e.harmed_by, 0) + 1
    _look_over(own)


def _retired(own: DreamsState, state: State, e: PatternRetired, at_ns: int) -> None:
    course = own.courses[e.pattern]
    course.phase, course.reason = "retired", e.reason
    _look_over(own)


def _requested(own: DreamsState, state: State, e: DreamRequested, at_ns: int) -> None:
    own.open = Dream(e.dream, e.pattern, e.purpose, e.mode, e.contrast, e.of)
    own.number, own.turn = max(own.number + 1, int(e.dream[1:])), e.pattern
    own.courses[e.pattern].dreams += 1
    day = _count_day(own.courses[e.pattern], at_ns)
    own.day, own.of_day = day, own.of_day + 1 if day == own.day else 1
    _answered_at_last(own)


def _imagined(own: DreamsState, state: State, e: DreamImagined, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is None:
        return
    course = own.courses[dream.pattern]
    dream.scenario, dream.sketch = e.scenario, e.sketch
    course.last_seeds = e.seeds
    _spend(own, course, e.tokens)
    if dream.purpose == "held-out":
        course.held[dream.id] = HeldOut(e.scenario, e.sketch)
    else:
        _keep(course.practised if dream.purpose == "practice" else course.varied, e.sketch)
    if dream.purpose == "practice":
        course.lately = [*course.lately[1 - LATELY :], e.scenario]
    _go_on(dream, "imagined")


def _answered(own: DreamsState, state: State, e: DreamAnswered, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is None:
        return
    dream.answer, dream.answer_sketch, dream.logprob = e.answer, e.sketch, e.logprob
    _spend(own, own.courses[dream.pattern], e.tokens)
    _go_on(dream, "answered")


def _judged(own: DreamsState, state: State, e: DreamJudged, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is None:
        return
    _spend(own, own.courses[dream.pattern], e.tokens)
    dream.example = e.example
    if e.better is not None:
        dream.answer = e.better
    _go_on(dream, "bettered" if e.better is not None else e.verdict)


def _trained(own: DreamsState, state: State, e: DreamTrained, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is not None and dream.sketch is not None:
        course = own.courses[dream.pattern]
        course.practices += 1
        course.owed = dream.id
        seen = Dreamt(dream.sketch, dream.answer_sketch, dream.logprob)
        if len(course.earliest) < RECENT:
            course.earliest.append(seen)
        course.recent = [*course.recent[1 - RECENT :], seen]
        if own.wanted is not None and own.wanted.left > 0:
            own.wanted.left = -1 if own.wanted.left == 1 else own.wanted.left - 1
        _go_on(dream, "trained")


def _tested(own: DreamsState, state: State, e: DreamTested, at_ns: int) -> None:
    course = own.courses.get(e.pattern)
    if course is None:
        return
    _spend(own, course, e.tokens)
    if e.by == NOBODY:
        course.misses, course.missed = course.misses + 1, e.reason
    if not e.round:
        _count(course, e)
        if (dream := _open(own, e.dream)) is not None:
            _go_on(dream, "tested")
        return
    own.turn = e.pattern
    _count_day(course, at_ns)
    if e.by != NOBODY:
        course.misses = 0
    if course.round != e.round:
        course.round, course.tried = e.round, []
    course.tried.append(Tried(e.dream, e.mode, e.contrast, e.passed, e.by != NOBODY))
    if complete(course):
        _complete(own, course)


def _count_day(course: Course, at_ns: int) -> int:
    """The day, counted from 1970 (UTC)."""
    day = at_ns // DAY_NS
    if day != course.day:
        course.day, course.days = day, course.days + 1
    return day


def _count(course: Course, e: DreamTested) -> None:
    """Of a variation: the last few count, in contrast the last few with each text."""
    _, of = course.pattern.settle
    if e.mode == "bare":
        course.bare = [*course.bare, e.passed][-of:]
        return
    course.contrast.append((e.contrast, e.passed))
    alike = [place for place, (text, _) in enumerate(course.contrast) if text == e.contrast]
    if len(alike) > of:
        del course.contrast[alike[0]]


def _complete(own: DreamsState, course: Course) -> None:
    """All tests of a round are made."""
    tests, (name, _, number) = tests_of(course), course.round.partition(" ")
    if name == "baseline":
        course.baseline = tests
        return
    course.final = tests
    failed = [one.contrast for one in course.tried if one.mode == "contrast" and not one.passed]
    course.failed = not enough(course, tests)
    course.weak = tuple(dict.fromkeys(failed)) if course.failed else ()
    if name == "recheck":
        course.rechecked = int(number)
        _look_over(own)
    elif course.failed:
        course.bare, course.contrast = [], []


def _dream_settled(own: DreamsState, state: State, e: DreamSettled, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is not None:
        course = own.courses[dream.pattern]
        course.misses = 0
        if dream.purpose == "variation":
            course.owed = ""
        own.open = None


def _abandoned(own: DreamsState, state: State, e: DreamAbandoned, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is not None:
        if (course := own.courses.get(dream.pattern)) is not None:
            course.misses, course.missed = course.misses + 1, e.reason
            if dream.purpose == "variation":
                course.owed = ""
        own.open = None
        _answered_at_last(own)


def _failed(own: DreamsState, state: State, e: DreamFailed, at_ns: int) -> None:
    own.attempts, own.error = e.attempt, e.reason
    own.refusals += e.cause not in OUTSIDE
    asked = own.open.pattern if own.open is not None and own.open.id == e.dream else ""
    for name, course in own.courses.items():
        if name == asked or e.dream in course.held:
            course.tokens += e.tokens
    own.retry_ns, own.retry_s = at_ns + int(e.retry_s * SECOND_NS), e.retry_s


def _started(own: DreamsState, state: State, e: DreamingStarted, at_ns: int) -> None:
    own.wanted, own.stopped = Wanted(e.pattern, e.count), ""
    for course in own.courses.values():
        course.recent, course.earliest = [], []  # a collapse is looked for anew
    _answered_at_last(own)


def _stopped(own: DreamsState, state: State, e: DreamingStopped, at_ns: int) -> None:
    own.wanted, own.stopped = None, "" if e.finished else e.reason


def _busy(own: DreamsState, state: State, e: EngineBusy, at_ns: int) -> None:
    own.users, own.users_reason = True, e.reason


def _idle(own: DreamsState, state: State, e: EngineIdle, at_ns: int) -> None:
    own.users, own.users_reason = False, ""


def _step_completed(own: DreamsState, state: State, e: StepCompleted, at_ns: int) -> None:
    if e.applied and own.courses:
        count_learned(own, all_examples(e))


def count_learned(own: DreamsState, examples: Sequence[str]) -> None:
    """Examples that a step learned, the one of the dream under way perhaps among them."""
    dreamt = own.open.example if own.open is not None else ""
    own.learned += [example == dreamt for example in examples]
    del own.learned[: max(0, len(own.learned) - SHARE_SPAN)]


def _rollback_started(own: DreamsState, state: State, e: RollbackStarted, at_ns: int) -> None:
    """What was settled with weights that are taken back is not settled; tests of those say nothing, either."""
    own.last_settled = ""  # whoever is not shown any more, this may be why
    for course in own.courses.values():
        course.bare, course.contrast = [], []
        if not course.baseline:
            continue  # of before any practice
        course.round, course.tried, course.rechecked = "", [], -1
        if course.phase == "settled" and course.settled_at in e.undone:
            course.taken_back = True
    _look_over(own)


def _pattern_carried(own: DreamsState, state: State, e: PatternCarried, at_ns: int) -> None:
    """After all that the journal took over of the pattern, which it puts right."""
    course = own.courses[e.pattern]
    course.dreams, course.practices, course.tokens = e.dreams, e.practices, e.tokens
    course.days, course.day, course.before = e.days, e.day, e.before
    course.misses, course.missed, course.owed = e.misses, e.missed, e.owed
    course.baseline, course.final, course.weak = dict(e.baseline), dict(e.final), e.weak
    course.bare, course.contrast = list(e.bare), list(e.contrast)
    course.last_seeds, course.lately = e.last_seeds, list(e.lately)
    course.failed = not enough(course, course.final)
    course.settled_at, course.taken_back, course.rechecked = e.settled_at, e.taken_back, e.rechecked
    course.harmed_by, course.recent, course.earliest = dict(e.harmed_by), list(e.recent), list(e.earliest)
    course.practised, course.varied = [], []
    _look_over(own)


def _scenarios_carried(own: DreamsState, state: State, e: ScenariosCarried, at_ns: int) -> None:
    course = own.courses[e.pattern]
    course.practised += e.practised
    course.varied += e.varied


def _dreaming_carried(own: DreamsState, state: State, e: DreamingCarried, at_ns: int) -> None:
    own.number, own.turn, own.settlings, own.last_settled = e.number, e.turn, e.settlings, e.last_settled
    _look_over(own)
    own.learned, own.day, own.of_day = list(e.learned), e.day, e.of_day


def _look_over(own: DreamsState) -> None:
    """What is asked of all patterns, after each event that may change it."""
    courses = own.courses.values()
    own.at_rest = all(rests(one, own.settlings) for one in courses)
    own.judged = any(one.phase != "retired" and not one.pattern.check.by_code for one in courses)


def _open(own: DreamsState, dream: str) -> Dream | None:
    return own.open if own.open is not None and own.open.id == dream else None


def _go_on(dream: Dream, happened: str) -> None:
    dream.stage = after(dream.purpose, dream.stage, happened) or dream.stage


def _spend(own: DreamsState, course: Course, tokens: int) -> None:
    course.tokens += tokens
    _answered_at_last(own)


def _answered_at_last(own: DreamsState) -> None:
    own.attempts, own.refusals, own.retry_ns, own.retry_s, own.error = 0, 0, 0, 0.0, ""


def _keep(kept: list[Any], one: object) -> None:
    kept.append(one)
    if len(kept) > KEPT:
        del kept[0]


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    PatternAdded: _added,
    PatternSettled: _settled,
    PatternUnsettled: _unsettled,
    PatternRetired: _retired,
    PatternCarried: _pattern_carried,
    ScenariosCarried: _scenarios_carried,
    DreamingCarried: _dreaming_carried,
    DreamRequested: _requested,
    DreamImagined: _imagined,
    DreamAnswered: _answered,
    DreamJudged: _judged,
    DreamTrained: _trained,
    DreamTested: _tested,
    DreamSettled: _dream_settled,
    DreamAbandoned: _abandoned,
    DreamFailed: _failed,
    DreamingStarted: _started,
    DreamingStopped: _stopped,
    EngineBusy: _busy,
    EngineIdle: _idle,
    StepCompleted: _step_completed,
    RollbackStarted: _rollback_started,
}
