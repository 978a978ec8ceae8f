"""Lessons that people give, ask about, correct and have forgotten."""

import anyio.to_thread

from apollod.adapters.system import clock
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.lessons.standing import alike, answer_of, standing
from apollod.core.lessons.state import Lesson, LessonsState
from apollod.core.lessons.wording import Given, Worded
from apollod.curation.lessons.lesson_refusals import check_given
from apollod.curation.lessons.worded import wordings
from apollod.errors import LessonRefused
from apollod.supervisor.lessons.lesson_view import lesson_of, lesson_view, lessons_view
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg

USAGE = 2  # exit code, which HTTP says as 400
LISTED = "`apollod ctl lesson list` has them"


async def teach(daemon: Daemon, request: msg.TeachRequest) -> msg.Answer:
    """Answered when it is recorded, with all about the lesson. What one teaches already is not given again; `already`:
    so it was."""
    own, older = daemon.loop.state.lessons, None
    if request.replaces:
        older = lesson_of(own, request.replaces)
        if older is None:
            return _unknown(own, request.replaces)
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
    if (taught := _taught(own, given, worded)) is not None:
        return _told(daemon, taught, already=True)
    wanted = inp.LessonWanted(given, request.by or "ctl", older.id if older is not None else "")
    recorded = [one.event for one in await daemon.loop.submit(wanted)]
    new = next(e.lesson for e in recorded if isinstance(e, ev.LessonGiven))
    return _told(daemon, own.lessons[new], already=False)


async def lesson(daemon: Daemon, request: msg.LessonQuestion) -> msg.Answer:
    """Answered from the state."""
    own = daemon.loop.state.lessons
    found = lesson_of(own, request.lesson)
    return _told(daemon, found) if found is not None else _unknown(own, request.lesson)


async def lessons(daemon: Daemon, request: msg.LessonsRequest) -> msg.Answer:
    """Answered from the state."""
    return msg.Reply(lessons_view(daemon.loop.state, request.state, request.limit, clock.now_ns()))


async def practise_lesson(daemon: Daemon, request: msg.LessonPractiseRequest) -> msg.Answer:
    """Answered when it is recorded, with all about the lesson. `already`: it waits or is practised anyway."""
    own = daemon.loop.state.lessons
    if (found := lesson_of(own, request.lesson)) is None:
        return _unknown(own, request.lesson)
    if found.state == "replaced":
        return msg.Failure(f"lesson {found.id} was replaced by {found.replaced_by}", f"practise {found.replaced_by}")
    recorded = await daemon.loop.submit(inp.LessonRequested(found.id, request.by or "ctl"))
    wanted = any(isinstance(one.event, ev.LessonRequested) for one in recorded)
    if not wanted and found.state == "given up":
        other = standing(own, found.worded.key) if found.worded is not None else None
        return msg.Failure(
            f"lesson {other.id if other else '?'} answers the question of {found.id} now",
            f"`apollod ctl lesson replace {other.id if other else 'ID'}` corrects it",
        )
    return _told(daemon, found, already=not wanted)


async def forget_lesson(daemon: Daemon, request: msg.LessonForgetRequest) -> msg.Answer:
    """Answered when it is recorded, with all about the lesson. `forgotten`: the examples that are taken out of the
    weights."""
    own = daemon.loop.state.lessons
    if (found := lesson_of(own, request.lesson)) is None:
        return _unknown(own, request.lesson)
    recorded = await daemon.loop.submit(inp.LessonUnwanted(found.id, request.by or "ctl"))
    wishes = [one.event for one in recorded if isinstance(one.event, ev.ForgetRequested)]
    answer = _told(daemon, found)
    return msg.Reply({**answer.body, "forgotten": [example for wish in wishes for example in wish.examples]})


def _told(daemon: Daemon, lesson: Lesson, **more: object) -> msg.Reply:
    return msg.Reply({**lesson_view(daemon.loop.state, lesson, clock.now_ns()), **more})


def _unknown(own: LessonsState, id_: str) -> msg.Failure:
    last = next(reversed(own.lessons), "")
    why = f"the last one is {last}" if last else "none was given yet"
    hint = LISTED if last else "`apollod ctl teach` gives one"
    return msg.Failure(f"there is no lesson {id_[:20]}: {why}", hint, missing=True)


def _given(request: msg.TeachRequest, older: Lesson | None) -> Given:
    """A new answer alone is one to the question of the lesson that it corrects."""
    statement, question, answer = request.statement.strip(), request.question.strip(), request.answer.strip()
    if older is not None and answer and not question:
        question = older.given.question or (older.worded.question if older.worded is not None else "")
    return Given(statement, question, answer)


def _taught(own: LessonsState, given: Given, worded: Worded) -> Lesson | None:
    """The lesson that has the same answer to the same question, or will have."""
    older = standing(own, worded.key)
    if older is not None and alike(answer_of(older), worded.answer):
        return older
    waiting = [own.lessons[id_] for id_ in (*own.queue, *([own.open.lesson] if own.open is not None else []))]
    return next((one for one in waiting if one.given == given), None)
