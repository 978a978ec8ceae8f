"""Requests about patterns, and to start and stop dreams of them."""

import anyio.to_thread

from apollod.adapters.system import clock
from apollod.core import inputs as inp
from apollod.core.facts.dreams.state import Course
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.settings import PatternSettings
from apollod.errors import unknown
from apollod.supervisor.dreaming.tested_answers import pattern_refused
from apollod.supervisor.lesson_view import patterns_view
from apollod.supervisor.requests.asked import USAGE, Daemon, input_of, reply
from apollod.wire import messages as msg


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


def _becomes(course: Course | None, pattern: PatternSettings) -> str:
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
