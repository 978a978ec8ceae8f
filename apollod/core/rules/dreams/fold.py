"""Folds the events of patterns and dreams into the state."""

from collections.abc import Iterable, Sequence
from typing import Any

from apollod.core import events as ev
from apollod.core.facts.dreams.course import CONTRASTS_FIRST, look_over
from apollod.core.facts.dreams.events import LEARNED_FROM
from apollod.core.facts.dreams.held_out_rounds import (
    complete,
    held_out_contrast,
    round_failed,
    sampled_of,
    shown_under,
    tests_around,
    tests_of,
    weak_after,
)
from apollod.core.facts.dreams.scenario import Dreamt
from apollod.core.facts.dreams.state import (
    BOOTSTRAP_ROUND,
    KEPT,
    NOBODY,
    OUTSIDE,
    RECENT,
    SHARE_SPAN,
    Course,
    Dream,
    DreamsState,
    HeldOut,
    Tests,
    Tried,
    Wanted,
    after,
    surface,
    teach,
)
from apollod.core.facts.lessons.stages import behaviour_after
from apollod.core.kernel.policy import Folds
from apollod.core.rules.dreams.continuing import CARRIED
from apollod.core.schedules import DAY_NS, NO_FAILURE
from apollod.core.state import State

SITUATION_MISSES = 3
"""failed situations in a row after which the pattern goes on with those it has"""
CONTRAST_MISSES = 3
"""bad answers in contrast in a row after which no more are requested under this text"""
LATELY = 3
"""number of last practised scenarios shown to the imagination"""


def _daemon_started(own: DreamsState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.users, own.users_reason = True, ""
    own.holds = e.settings.lessons.hold > 0.0
    _answered_at_last(own)


def _added(own: DreamsState, state: State, e: ev.PatternAdded, at_ns: int) -> None:
    """Keep what was practised and tested under this name before: a practised scenario is never tested, nor the
    reverse."""
    before = own.courses.get(e.pattern.name)
    new = own.courses[e.pattern.name] = Course(e.pattern, e.by, at_ns)
    if before is not None:
        new.practised, new.examples = before.practised, before.examples
        new.varied = [*before.varied, *(one.sketch for one in before.apart.values())]
        if before.pattern != e.pattern:
            own.replaced.setdefault(e.pattern.name, []).append(before.replaced())
    _contrasts_gone(own.courses.values())
    look_over(own)


def _contrasts_gone(courses: Iterable[Course]) -> None:
    """Forget the held answers in contrast, which are dropped."""
    for course in courses:
        course.contrasted = {}


def _settled(own: DreamsState, state: State, e: ev.PatternSettled, at_ns: int) -> None:
    """Take the figures from the event: earlier releases decided a round by fewer answers."""
    course = own.courses[e.pattern]
    course.move(e.kind, at_ns, "")
    course.settled_at, course.due, course.failed = e.step, "", False
    course.final, course.final_around = e.tests, e.around
    course.sampled, course.contrast_held_out = e.sampled, e.contrast_held_out
    own.settlings += 1
    own.last_settled, course.rechecked = e.pattern, own.settlings
    look_over(own)


def _unsettled(own: DreamsState, state: State, e: ev.PatternUnsettled, at_ns: int) -> None:
    course = own.courses[e.pattern]
    course.move(e.kind, at_ns, e.reason)
    course.bare, course.contrast, course.misses, course.taken_back = [], [], 0, False
    course.shown_under = {}
    course.before = (course.practices, course.tokens, course.days)
    if e.harmed_by:
        course.harmed_by[e.harmed_by] = course.harmed_by.get(e.harmed_by, 0) + 1
    look_over(own)


def _retired(own: DreamsState, state: State, e: ev.PatternRetired, at_ns: int) -> None:
    own.courses[e.pattern].move(e.kind, at_ns, e.reason)
    _contrasts_gone(own.courses.values())
    look_over(own)


def _requested(own: DreamsState, state: State, e: ev.DreamRequested, at_ns: int) -> None:
    own.open = Dream(e.dream, e.pattern, e.purpose, e.mode, e.contrast, e.of, e.surrounding)
    own.number, own.turn = max(own.number + 1, int(e.dream[1:])), e.pattern
    course = own.courses[e.pattern]
    course.dreams, course.state = course.dreams + 1, behaviour_after(course.state, e.kind)
    day = _count_day(course, at_ns)
    own.day, own.of_day = day, own.of_day + 1 if day == own.day else 1
    _answered_at_last(own)


def _imagined(own: DreamsState, state: State, e: ev.DreamImagined, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is None:
        return
    course = own.courses[dream.pattern]
    dream.scenario, dream.sketch, dream.surrounding = e.scenario, e.sketch, e.surrounding
    course.last_seeds = dream.seeds = e.seeds
    surface(course, e.seeds)
    course.left_out.pop(dream.drawn.kind, None)
    if e.left_out:
        course.left_out[dream.drawn.kind] = e.left_out
    _spend(own, course, e.tokens)
    if dream.purpose == "held-out":
        course.held[dream.id] = HeldOut(e.scenario, e.sketch, e.surrounding)
    elif dream.purpose == "situation":
        course.situations[dream.id] = HeldOut(e.scenario, e.sketch, e.surrounding)
    else:
        _keep(course.practised if dream.purpose in LEARNED_FROM else course.varied, e.sketch)
    if dream.purpose in LEARNED_FROM:
        course.lately = [*course.lately[1 - LATELY :], e.scenario]
    _go_on(dream, "imagined")


def _answered(own: DreamsState, state: State, e: ev.DreamAnswered, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is None:
        return
    dream.told, dream.answer, dream.answer_sketch, dream.logprob = e.told, e.answer, e.sketch, e.logprob
    _spend(own, own.courses[dream.pattern], e.tokens)
    _go_on(dream, "answered")


def _judged(own: DreamsState, state: State, e: ev.DreamJudged, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is None:
        return
    course = own.courses[dream.pattern]
    _spend(own, course, e.tokens)
    dream.example = e.example
    course.examples += [e.example] if e.example else []
    if e.better is not None:
        dream.answer = e.better
    if dream.purpose == "contrast" and e.verdict == "good":
        course.contrasted[dream.contrast] = course.contrasted.get(dream.contrast, 0) + 1
    _go_on(dream, "bettered" if e.better is not None else e.verdict)


def _trained(own: DreamsState, state: State, e: ev.DreamTrained, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is not None and dream.sketch is not None:
        course = own.courses[dream.pattern]
        course.practices += 1
        course.owed = dream.id
        teach(course, dream)
        seen = Dreamt(dream.sketch, dream.answer_sketch, dream.logprob)
        if len(course.earliest) < RECENT:
            course.earliest.append(seen)
        course.recent = [*course.recent[1 - RECENT :], seen]
        if own.wanted is not None and own.wanted.left > 0:
            own.wanted.left = -1 if own.wanted.left == 1 else own.wanted.left - 1
        _go_on(dream, "trained")


def _tested(own: DreamsState, state: State, e: ev.DreamTested, at_ns: int) -> None:
    course = own.courses.get(e.pattern)
    if course is None:
        return
    course.state = behaviour_after(course.state, e.kind)
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
    course.proofs += e.sample > 0 and not any(one.sample for one in course.tried)
    course.tried.append(Tried(e.dream, e.mode, e.contrast, e.passed, e.by != NOBODY, e.surrounding, e.sample))
    if complete(course):
        _complete(own, course)


def _count_day(course: Course, at_ns: int) -> int:
    """Count a new day of the pattern. Returns the day, counted from 1970 (UTC)."""
    day = at_ns // DAY_NS
    if day != course.day:
        course.day, course.days = day, course.days + 1
    return day


def _count(course: Course, e: ev.DreamTested) -> None:
    """Count the test of a variation: the last few count, in contrast the last few with each text."""
    _, of = course.pattern.settle
    if e.mode == "bare":
        course.bare = [*course.bare, e.passed][-of:]
        return
    course.contrast.append((e.contrast, e.passed))
    alike = [place for place, (text, _) in enumerate(course.contrast) if text == e.contrast]
    if len(alike) > of:
        del course.contrast[alike[0]]


def _complete(own: DreamsState, course: Course) -> None:
    """Take the results of a complete round."""
    tests, around, (name, _, number) = tests_of(course), tests_around(course), course.round.partition(" ")
    if name == "baseline":
        course.baseline, course.baseline_around = tests, around
        return
    course.failed, course.sampled = round_failed(course), sampled_of(course)
    if name == "shown":
        shown = Tests() if course.failed else {"bare": course.baseline["bare"]}
        course.final, course.final_around, course.contrast_held_out = shown, {}, {}
        return
    course.final, course.final_around = tests, around
    course.contrast_held_out = held_out_contrast(course)
    course.weak = weak_after(course) if course.failed else ()
    if name == "final":
        course.shown_under = shown_under(course)
    if name == BOOTSTRAP_ROUND and (course.failed or course.phase == "settled"):
        course.due = ""
        look_over(own)
    if name == "recheck":
        course.rechecked = int(number)
        look_over(own)
    elif course.failed:
        course.bare, course.contrast = [], []


def _dream_settled(own: DreamsState, state: State, e: ev.DreamSettled, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is not None:
        course = own.courses[dream.pattern]
        course.misses = 0
        if dream.purpose == "variation":
            course.owed = ""
        own.open = None


def _abandoned(own: DreamsState, state: State, e: ev.DreamAbandoned, at_ns: int) -> None:
    if (dream := _open(own, e.dream)) is not None:
        if (course := own.courses.get(dream.pattern)) is not None:
            course.misses, course.missed = course.misses + 1, e.reason
            if dream.purpose == "variation":
                course.owed = ""
            if dream.purpose == "situation" and course.misses >= SITUATION_MISSES:
                course.no_situations, course.misses = e.reason, 0
            if dream.purpose == "contrast" and course.misses >= CONTRAST_MISSES:
                course.contrasted[dream.contrast], course.misses = CONTRASTS_FIRST, 0
        own.open = None
        _answered_at_last(own)


def _failed(own: DreamsState, state: State, e: ev.DreamFailed, at_ns: int) -> None:
    own.retry, own.error = own.retry.after(at_ns, e.retry_s, e.attempt), e.reason
    own.refusals += e.cause not in OUTSIDE
    asked = own.open.pattern if own.open is not None and own.open.id == e.dream else ""
    for name, course in own.courses.items():
        if name == asked or e.dream in course.apart:
            course.tokens += e.tokens


def _started(own: DreamsState, state: State, e: ev.DreamingStarted, at_ns: int) -> None:
    own.wanted, own.stopped = Wanted(e.pattern, e.count), ""
    for course in own.courses.values():
        course.recent, course.earliest = [], []  # a collapse is looked for anew
    _answered_at_last(own)


def _stopped(own: DreamsState, state: State, e: ev.DreamingStopped, at_ns: int) -> None:
    own.wanted, own.stopped = None, "" if e.finished else e.reason


def _busy(own: DreamsState, state: State, e: ev.EngineBusy, at_ns: int) -> None:
    own.users, own.users_reason = True, e.reason


def _idle(own: DreamsState, state: State, e: ev.EngineIdle, at_ns: int) -> None:
    own.users, own.users_reason = False, ""


def _step_completed(own: DreamsState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    if not e.applied or not own.courses:
        return
    learned, dream = ev.all_examples(e), own.open
    count_learned(own, learned)
    if dream is not None and dream.example in learned:
        dream.loss = e.losses[learned.index(dream.example)] if len(e.losses) == len(learned) else e.loss


def count_learned(own: DreamsState, examples: Sequence[str]) -> None:
    """Note for each example of a step whether it was dreamt."""
    dreamt = own.open.example if own.open is not None else ""
    own.learned += [example == dreamt for example in examples]
    del own.learned[: max(0, len(own.learned) - SHARE_SPAN)]


def _bootstrap_completed(own: DreamsState, state: State, e: ev.BootstrapCompleted, at_ns: int) -> None:
    """Have a pattern that logs taught tested, unless nothing was learned since the last test."""
    done = state.bootstrap.current
    course = own.courses.get(done.request.pattern) if done is not None else None
    if done is None or course is None or course.pattern.instruction != done.request.instruction:
        return
    if e.counts.learned > done.completed:
        course.bootstraps += 1
        course.due = f"{BOOTSTRAP_ROUND} {course.bootstraps}"
        look_over(own)


def _rollback_started(own: DreamsState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    """Unsettle patterns settled with weights that are taken back, and drop tests of those weights."""
    own.last_settled = ""  # a behaviour lost from now on may be lost because of the rollback
    _contrasts_gone(own.courses.values())
    for course in own.courses.values():
        course.bare, course.contrast, course.shown_under = [], [], {}
        if not course.baseline:
            continue  # the tests are from before any practice
        course.round, course.tried, course.rechecked = "", [], -1
        if course.phase == "settled" and course.settled_at in e.undone:
            course.taken_back = True
    look_over(own)


def _open(own: DreamsState, dream: str) -> Dream | None:
    return own.open if own.open is not None and own.open.id == dream else None


def _go_on(dream: Dream, happened: str) -> None:
    dream.stage = after(dream.purpose, dream.stage, happened) or dream.stage


def _spend(own: DreamsState, course: Course, tokens: int) -> None:
    course.tokens += tokens
    _answered_at_last(own)


def _answered_at_last(own: DreamsState) -> None:
    own.retry, own.refusals, own.error = NO_FAILURE, 0, ""


def _keep(kept: list[Any], one: object) -> None:
    kept.append(one)
    if len(kept) > KEPT:
        del kept[0]


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.PatternAdded: _added,
    ev.PatternSettled: _settled,
    ev.PatternUnsettled: _unsettled,
    ev.PatternRetired: _retired,
    **CARRIED,
    ev.DreamRequested: _requested,
    ev.DreamImagined: _imagined,
    ev.DreamAnswered: _answered,
    ev.DreamJudged: _judged,
    ev.DreamTrained: _trained,
    ev.DreamTested: _tested,
    ev.DreamSettled: _dream_settled,
    ev.DreamAbandoned: _abandoned,
    ev.DreamFailed: _failed,
    ev.DreamingStarted: _started,
    ev.DreamingStopped: _stopped,
    ev.EngineBusy: _busy,
    ev.EngineIdle: _idle,
    ev.StepCompleted: _step_completed,
    ev.RollbackStarted: _rollback_started,
    ev.BootstrapCompleted: _bootstrap_completed,
}
