"""Requests to give, show, correct, practise and forget lessons; about patterns, which are also the lessons of
behaviours, and to start and stop dreams of them."""

import anyio.to_thread

from apollod.adapters.system import clock
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.patterns import named
from apollod.core.facts.dreams.state import Course as Behaviour
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Worded
from apollod.core.facts.lessons.state import Lesson, LessonsState
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.rules.lessons.standing import alike, answer_of, rivals
from apollod.core.settings import PatternSettings
from apollod.core.state import State
from apollod.curation.lessons.worded import check_given, wordings
from apollod.errors import LessonRefused, unknown
from apollod.supervisor.dreaming.tested_answers import pattern_refused
from apollod.supervisor.lesson_view import found, lesson_view, lessons_view, patterns_view
from apollod.supervisor.requests.asked import USAGE, Daemon, input_of, reply
from apollod.wire import messages as msg

LISTED = "`apollod ctl lesson list` has them"


async def teach(daemon: Daemon, request: msg.TeachRequest) -> msg.Answer:
    """Teach a lesson; answered when it is recorded, with its view. `already`: another lesson teaches it already, and
    none was added."""
    if request.pattern is not None:
        return await _teach_behaviour(daemon, request.pattern, request.by)
    state, own = daemon.loop.state, daemon.loop.state.lessons
    older = found(state, request.replaces) if request.replaces else None
    if request.replaces and older is None:
        return _unknown(state, request.replaces)
    if older is not None:
        if isinstance(older, Behaviour):
            return msg.Failure(
                f"{request.replaces} is a behaviour, and another instruction replaces it",
                f"`apollod ctl teach --instruction TEXT --name {request.replaces}` gives one",
                code=USAGE,
            )
        if older.state == "replaced":
            return msg.Failure(
                f"lesson {older.id} was replaced by {older.replaced_by} already", f"replace {older.replaced_by} instead"
            )
    given = _given(request, older)
    try:
        check_given(given)
        worded = await anyio.to_thread.run_sync(wordings, given)
    except LessonRefused as refused:
        return msg.Failure(str(refused), refused.hint, code=USAGE)
    if (taught := teaching(own, given, worded)) is not None:
        return _told(daemon, taught, already=True)
    wanted = input_of(inp.LessonWanted, request, given=given, replaces=older.id if older is not None else "")
    recorded = [one.event for one in await daemon.loop.submit(wanted)]
    new = next(e.lesson for e in recorded if isinstance(e, ev.LessonGiven))
    return _told(daemon, own.lessons[new], already=False)


async def _teach_behaviour(daemon: Daemon, pattern: PatternSettings, by: str) -> msg.Answer:
    """Teach a behaviour like `apollod ctl pattern add`, with a generated name if it has none."""
    courses = daemon.loop.state.dreams.courses
    pattern = named(pattern, {name: one.pattern for name, one in courses.items()})
    answer = await add_pattern(daemon, msg.PatternAddRequest(pattern, by))
    if isinstance(answer, msg.Failure):
        return answer
    return _told(daemon, courses[pattern.name], already=answer.body["became"] == "unchanged")


async def lesson(daemon: Daemon, request: msg.LessonQuestion) -> msg.Answer:
    """Show one lesson, from the state."""
    state = daemon.loop.state
    one = found(state, request.lesson, request.given_at)
    return _told(daemon, one) if one is not None else _unknown(state, request.lesson)


async def lessons(daemon: Daemon, request: msg.LessonsRequest) -> msg.Answer:
    """List lessons, from the state."""
    return msg.Reply(lessons_view(daemon.loop.state, request.state, request.limit, clock.now_ns(), request.document))


async def practise_lesson(daemon: Daemon, request: msg.LessonPractiseRequest) -> msg.Answer:
    """Practise a lesson; answered when it is recorded, with its view. `already`: it waits or is practised already."""
    state = daemon.loop.state
    if (lesson := found(state, request.lesson)) is None:
        return _unknown(state, request.lesson)
    if isinstance(lesson, Behaviour):
        answer = await start_dreams(daemon, msg.DreamStartRequest(lesson.pattern.name, by=request.by))
        return answer if isinstance(answer, msg.Failure) else _told(daemon, lesson, already=False)
    if lesson.state == "replaced":
        return msg.Failure(f"lesson {lesson.id} was replaced by {lesson.replaced_by}", f"practise {lesson.replaced_by}")
    recorded = await daemon.loop.submit(input_of(inp.LessonRequested, request, lesson=lesson.id))
    wanted = any(isinstance(one.event, ev.LessonRequested) for one in recorded)
    if not wanted and lesson.state == "given up":
        others = rivals(state.lessons, lesson.id, lesson.worded) if lesson.worded is not None else []
        return msg.Failure(
            f"lesson {others[0].id if others else '?'} answers the question of {lesson.id} now",
            f"`apollod ctl lesson replace {others[0].id if others else 'ID'}` corrects it",
        )
    return _told(daemon, lesson, already=not wanted)


async def forget_lesson(daemon: Daemon, request: msg.LessonForgetRequest) -> msg.Answer:
    """Forget a lesson; answered when it is recorded, with its view. `forgotten`: examples to be taken out of the
    weights."""
    state = daemon.loop.state
    if (lesson := found(state, request.lesson)) is None:
        return _unknown(state, request.lesson)
    if isinstance(lesson, Behaviour):
        recorded = await daemon.loop.submit(
            input_of(inp.PatternUnwanted, request, pattern=lesson.pattern.name, forget=True)
        )
    else:
        recorded = await daemon.loop.submit(input_of(inp.LessonUnwanted, request, lesson=lesson.id))
    wishes = [one.event for one in recorded if isinstance(one.event, ev.ForgetRequested)]
    answer = _told(daemon, lesson)
    return msg.Reply({**answer.body, "forgotten": [example for wish in wishes for example in wish.examples]})


def _told(daemon: Daemon, lesson: Lesson | Behaviour, **more: object) -> msg.Reply:
    return msg.Reply({**lesson_view(daemon.loop.state, lesson, clock.now_ns()), **more})


def _unknown(state: State, id_: str) -> msg.Failure:
    last = next(reversed(state.lessons.lessons), "") or next(reversed(state.dreams.courses), "")
    why = f"the last one is {last}" if last else "none was given yet"
    hint = LISTED if last else "`apollod ctl teach` gives one"
    return msg.Failure(f"there is no lesson {id_[:20]}: {why}", hint, missing=True)


def _given(request: msg.TeachRequest, older: Lesson | None) -> Given:
    """The lesson as given; an answer alone takes the question of the lesson that it corrects."""
    statement, question, answer = request.statement.strip(), request.question.strip(), request.answer.strip()
    if older is not None and answer and not question:
        question = older.given.question or (older.worded.question if older.worded is not None else "")
    return Given(statement, question, answer)


def teaching(own: LessonsState, given: Given, worded: Worded) -> Lesson | None:
    """The lesson that has, or will have, the same answer to the same question; None: none."""
    if same := next((one for one in rivals(own, "", worded) if alike(answer_of(one), worded.answer)), None):
        return same
    waiting = [own.lessons[id_] for id_ in (*own.queue, *([own.open.lesson] if own.open is not None else []))]
    return next((one for one in waiting if one.given.says_the_same(given)), None)


# --- patterns and dreams --------------------------------------------------------------------------------------------


async def start_dreams(daemon: Daemon, request: msg.DreamStartRequest) -> msg.Answer:
    """Start dreams; answered when it is recorded, with the first dream and the reason why it waits."""
    courses = daemon.loop.state.dreams.courses
    if not courses:
        return msg.Failure("there is no pattern to dream of", "`apollod ctl pattern add` adds one")
    wanted = [one for name, one in courses.items() if request.pattern in ("", name)]
    if not wanted:
        return unknown_pattern(request.pattern, list(courses))
    if not any(one.phase == "active" for one in wanted):
        which = f"{request.pattern} is {wanted[0].phase}" if request.pattern else "every pattern is settled or retired"
        hint = "`apollod ctl pattern add` has one practised"
        return msg.Failure(f"{which}, so there is nothing to practise", hint)
    await daemon.loop.submit(input_of(inp.DreamingStarted, request))
    state = daemon.loop.state
    return reply(
        pattern=request.pattern,
        count=request.count,
        next=dreams_status.upcoming(state),
        reason=dreams_status.reason(state, clock.now_ns()),
    )


async def stop_dreams(daemon: Daemon, request: msg.DreamStopRequest) -> msg.Answer:
    """Stop dreams; answered when it is recorded. The dream under way is kept, and goes on when dreaming is started
    again."""
    dreams = daemon.loop.state.dreams
    stopped_before = bool(dreams.stopped)
    await daemon.loop.submit(input_of(inp.DreamingStopped, request, reason=f"stopped by {request.by or 'ctl'}"))
    dreams = daemon.loop.state.dreams
    return reply(
        stopped=dreams.stopped, before=stopped_before, dream=dreams.open.id if dreams.open is not None else None
    )


async def patterns(daemon: Daemon, request: msg.PatternsRequest) -> msg.Answer:
    """Show all patterns, from the state."""
    return msg.Reply(patterns_view(daemon.loop.state, clock.now_ns()))


async def add_pattern(daemon: Daemon, request: msg.PatternAddRequest) -> msg.Answer:
    """Add a pattern; answered when it is recorded. `became`: added; again: it was retired; replaced: another one had
    its name, and all begins anew; unchanged: it existed already, and nothing happened."""
    pattern = request.pattern
    if why := await anyio.to_thread.run_sync(pattern_refused, pattern):
        return msg.Failure(f"{pattern.name}: {why}", "see `apollod ctl pattern add --help`", code=USAGE)
    for other in daemon.config.dream.pattern:
        if other.name == pattern.name and other != pattern:
            return msg.Failure(
                f"{pattern.name} is a pattern of the configuration, and the next start would put that one back",
                "change it there and restart the daemon, or choose another name",
                code=USAGE,
            )
    became = _becomes(daemon.loop.state.dreams.courses.get(pattern.name), pattern)
    if became != "unchanged":
        judge = daemon.judge.configured() if daemon.judge is not None else None
        await daemon.loop.submit(input_of(inp.PatternWanted, request, judge=judge))
    state, now_ns = daemon.loop.state, clock.now_ns()
    waits = dreams_status.reason_of(state.dreams.courses[pattern.name], state, now_ns)
    return reply(pattern=pattern.name, became=became, waits=waits)


def _becomes(course: Behaviour | None, pattern: PatternSettings) -> str:
    if course is None:
        return "added"
    if course.pattern != pattern:
        return "replaced"
    return "again" if course.phase == "retired" else "unchanged"


async def retire_pattern(daemon: Daemon, request: msg.PatternRetireRequest) -> msg.Answer:
    """Retire a pattern; answered when it is recorded. Learned examples stay learned."""
    courses = daemon.loop.state.dreams.courses
    if (course := courses.get(request.name)) is None:
        return unknown_pattern(request.name, list(courses))
    if course.phase == "retired":
        return msg.Failure(f"{request.name} is retired already: {course.reason}", "nothing was changed")
    await daemon.loop.submit(input_of(inp.PatternUnwanted, request, pattern=request.name))
    return reply(pattern=request.name, practices=course.practices)


def unknown_pattern(name: str, known: list[str]) -> msg.Failure:
    """The error for an unknown pattern."""
    error = unknown("pattern", name, known, "`apollod ctl pattern add` adds one")
    return msg.Failure(str(error), error.hint, missing=True)
