"""Chooses the next lesson and the next call for it, handles requests about lessons, and makes lessons of direct lines.

One lesson at a time and one call at a time; steps of other examples go on in between. A call is repeated until an event
records its outcome, and each practice has an example of its own, so a crash costs one more call and never a second
step. The work for each input does not depend on the number of lessons.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.forgetting import Wish
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons import rounds
from apollod.core.facts.lessons.rounds import longest_s
from apollod.core.facts.lessons.stages import Course, Stage
from apollod.core.facts.lessons.state import OUT, OUTSIDE, Lesson, LessonsState
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.rules.lessons.replies import ANSWERS, given_up, missed, next_practice
from apollod.core.rules.lessons.standing import dropped, not_these, replaced, rivals, waits
from apollod.core.schedules import SECOND_NS, is_due
from apollod.core.settings import LessonSettings
from apollod.core.shared.places import places_of, taken_back
from apollod.core.state import State


def advance(state: State, now_ns: int) -> Outcome:
    """The next call or lesson, if one may begin."""
    own, settings = state.lessons, state.daemon.settings
    if settings is None or state.daemon.stopping or not own.lessons:
        return nothing()
    for id_, why in own.harmful.items():
        return Outcome(_given_up(state, own.lessons[id_], f"one of its examples is held: {why}", now_ns), [])
    if own.open is not None and own.open.stage is Stage.LEARNING:
        return _learning(state, own.open, now_ns)
    next_ = "" if own.open is not None else _next(state, settings.lessons, now_ns)
    if (own.open is None and not next_) or blocked(Activity.TEACHING, state):
        return nothing()
    if own.open is None:
        return Outcome([_begun(own.lessons[next_])], [])
    if not own.retry.is_due(now_ns):
        return nothing()
    return Outcome([], [call_of(state, settings.lessons, own.open)])


def _given_up(state: State, lesson: Lesson, reason: str, now_ns: int, by: str = "apollod") -> list[ev.Event]:
    return [*dropped(state, lesson, by, reason), given_up(state, lesson, reason, now_ns, by)]


def _learning(state: State, course: Course, now_ns: int) -> Outcome:
    """Record a practice as missed if its example is not going to be learned."""
    taken = {one.example for one in state.intake.taken}
    gone = next((one for one in course.examples if one not in taken and not waits(state, one)), "")
    if not gone:
        return nothing()
    return Outcome(missed(state, f"its example is not learned: `apollod ctl why {gone}` says why", now_ns, gone), [])


def _next(state: State, settings: LessonSettings, now_ns: int) -> str:
    """The next lesson: one whose line waits for its first look, else waiting lessons and due ones by turns."""
    own = state.lessons
    if (looked := next(iter(state.intake.first_looks.values()), "")) in own.queue:
        return looked
    waiting = next(iter(own.queue), "")
    return waiting if waiting and own.asked_again else _due(state, settings, now_ns) or waiting


def _due(state: State, settings: LessonSettings, now_ns: int) -> str:
    """The first known lesson to be asked again; empty: none is due."""
    own = state.lessons
    if own.due and is_due(now_ns, own.due[0][0], longest_s(settings.ask_again)):
        return f"L{own.due[0][1]}"
    if own.due_steps and own.due_steps[0][0] <= state.training.version:
        return f"L{own.due_steps[0][1]}"
    return ""


def _begun(lesson: Lesson) -> ev.LessonBegun:
    if lesson.state == "known":
        return ev.LessonBegun(lesson=lesson.id, stage=Stage.AGAIN, why="again")
    why = "fading" if lesson.state == "fading" else "requested" if lesson.reason else "given"
    goes_on = lesson.steps or lesson.state == "fading" or rounds.can_be_told(lesson)
    first = Stage.TESTING if goes_on else Stage.BASELINE
    return ev.LessonBegun(lesson=lesson.id, stage=first if lesson.worded is not None else Stage.WORDING, why=why)


def call_of(state: State, settings: LessonSettings, course: Course) -> fx.Effect:
    """The call that the lesson under way waits for."""
    own = state.lessons
    lesson, attempt = own.lessons[course.lesson], own.retry.failures + 1
    if lesson.worded is None:
        return fx.WordLesson(lesson.id, attempt, lesson.given)
    if course.stage is Stage.PREPARING:
        return fx.PrepareLesson(
            lesson.id, attempt, next_practice(lesson, course), lesson.told, lesson.worded.practice[course.todo[0]],
            settings.practice, not_these(lesson),
        )  # fmt: skip
    return fx.AskLesson(
        lesson.id, attempt, course.stage, rounds.mode_of(course.stage), course.round, len(course.tried),
        lesson.told if course.stage is Stage.TOLD else "", rounds.asks(lesson, lesson.worded, course),
        not_these(lesson),
    )  # fmt: skip


def _on_wanted(state: State, input_: inp.LessonWanted, now_ns: int) -> Outcome:
    own = state.lessons
    id_ = f"L{own.number + 1}"
    events: list[ev.Event] = [composed(ev.LessonGiven, input_, lesson=id_)]
    older = own.lessons.get(input_.replaces)
    if older is not None and older.state != "replaced":
        events += replaced(state, older, id_)
    return Outcome(events, [])


def _on_requested(state: State, input_: inp.LessonRequested, now_ns: int) -> Outcome:
    """Practise a known or given up lesson again, unless another one answers its question."""
    own = state.lessons
    lesson = own.lessons.get(input_.lesson)
    if lesson is None or lesson.state not in ("known", "given up") or _is_open(state, lesson):
        return nothing()
    if lesson.worded is not None and rivals(own, lesson.id, lesson.worded):
        return nothing()
    return Outcome([input_], [])


def _on_unwanted(state: State, input_: inp.LessonUnwanted, now_ns: int) -> Outcome:
    """Give the lesson up, and forget its steps like any others."""
    lesson = state.lessons.lessons.get(input_.lesson)
    if lesson is None:
        return nothing()
    reason = f"{input_.by} had lesson {lesson.id} forgotten"
    wishes = {example: Wish(input_.by, reason) for example in lesson.examples}
    places = places_of(state, wishes)
    over = lesson.state in OUT
    events = [] if over else _given_up(state, lesson, reason, now_ns, input_.by)
    if (line := places.get(lesson.example)) is not None and line.state == "pending":
        events.append(ev.ExampleWithdrawn(examples=(lesson.example,), by=input_.by, reason=reason))
    return Outcome([*events, *taken_back(state, wishes, places, again=True)], [])


def _is_open(state: State, lesson: Lesson) -> bool:
    return state.lessons.open is not None and state.lessons.open.lesson == lesson.id


class Lessons(msgspec.Struct, frozen=True, kw_only=True):
    """Lessons of all kinds, by their state; a behaviour's id is its pattern's name."""

    waiting: int = 0
    """their turn has not come"""
    practising: int = 0
    known: int = 0
    fading: int = 0
    """were known, and wait for their turn"""
    replaced: int = 0
    """another lesson has another answer to the same question"""
    given_up: int = 0
    lesson: str = ""
    """the one under way; empty: none"""
    stage: str = ""
    """its stage"""
    reason: str = ""
    """why no lesson is asked or prepared now, or, if only behaviours are left, no dream is made; empty: nothing
    prevents it"""
    error: str = ""
    """why the last call had no usable answer; empty after a usable one"""
    due_at: float | None = None
    """Unix time at which a known one is asked again; null: none"""


def status(state: State, now_ns: int) -> Lessons:
    """The number of lessons in each state, and the present activity: for facts, else for behaviours."""
    own, dreams = state.lessons, state.dreams
    if not own.lessons and not dreams.courses:
        return Lessons()
    states = Counter(one.state for one in own.lessons.values()) + Counter(one.state for one in dreams.definitions)
    course = own.open
    due = own.due[0][0] if own.due else 0
    if course is None and not own.queue and any(one.phase == "active" for one in dreams.courses.values()):
        dream = dreams.open
        under_way = (dream.pattern, str(dream.stage)) if dream is not None else ("", "")
        reason, error = dreams_status.reason(state, now_ns), dreams.error
    else:
        under_way = (course.lesson, str(course.stage)) if course is not None else ("", "")
        reason, error = blocked(Activity.TEACHING, state), own.error
    return Lessons(
        waiting=states["waiting"], practising=states["practising"], known=states["known"], fading=states["fading"],
        replaced=states["replaced"], given_up=states["given up"], lesson=under_way[0], stage=under_way[1],
        reason=reason, error=error, due_at=due / SECOND_NS if due else None,
    )  # fmt: skip


# Makes lessons of lines that are given directly.
#
# Law: a given line always gets at least a step. It waits for the first look of its lesson (wordings, bare and told
# answers of the model), and is then learned as without a lesson, regardless of the result, unless the model knows it. A
# line that is taken back takes its lesson with it. Every decision passes through `with_lessons`.

WAITING_MAX = 20
"""most waiting lessons; beyond that none is made of a line, which would wait for too long"""

_TAKES_BACK = ev.ExampleDeclined | ev.ExampleEdited | ev.ExampleWithdrawn | ev.ForgetRequested
_LOOKED = ev.LessonAsked | ev.LessonKnown | ev.LessonGivenUp | ev.LessonReplaced
_CONCERNED = ev.ExampleAccepted | ev.ExampleApproved | ev.LessonFailed | _TAKES_BACK | _LOOKED


def with_lessons(state: State, outcome: Outcome, now_ns: int) -> Outcome:
    """Add to a decision the lessons made of its lines, the ends of lessons whose line is gone, and the first looks that
    are over. The position of a source stays the last event."""
    events = outcome.events
    if state.daemon.settings is None or not any(isinstance(one, _CONCERNED) for one in events):
        return outcome
    made, left_out = _made(state, events)
    more: list[ev.Event] = [*made.values(), *left_out]
    gone = _gone(events)
    more += _without_line(state, gone, _newer(events, made), [*events, *more], now_ns)
    more += _unanswered(state, [*events, *more], now_ns)
    more += _looked(state, [*events, *more], gone)
    if not more:
        return outcome
    end = len(events) - isinstance(events[-1], ev.SourceConsumed)
    return Outcome([*map(_said_once, events[:end], [made] * end), *more, *events[end:]], outcome.effects)


def _said_once(event: ev.Event, made: Mapping[str, ev.LessonGiven]) -> ev.Event:
    """Drop the lesson's content from the line's event once the lesson has it: only a held line keeps it."""
    if isinstance(event, ev.ExampleAccepted) and event.lesson is not None and event.example in made:
        return replace(event, lesson=None)
    return event


def _made(state: State, events: Sequence[ev.Event]) -> tuple[dict[str, ev.LessonGiven], list[ev.LessonsLeftOut]]:
    """Lessons by the example of their line, as far as there is room, and the lines left out."""
    own, settings = state.lessons, state.daemon.settings
    if settings is None or not settings.lessons.direct:
        return {}, []
    taught = list(_taught(own, events))
    why = _no_room(own)
    room = 0 if why else WAITING_MAX - len(own.queue)
    first = own.number + 1 + sum(isinstance(one, ev.LessonGiven) for one in events)
    made = {
        example: ev.LessonGiven(lesson=f"L{number}", given=given, by=by, example=example)
        for number, (example, given, by) in enumerate(taught[:room], first)
    }
    rest = tuple(example for example, *_ in taught[room:])
    why = f"{why or _FULL}: it is learned once, without a lesson"
    return made, [ev.LessonsLeftOut(examples=rest, reason=why)] if rest else []


_FULL = f"{WAITING_MAX} lessons wait already"


def _no_room(own: LessonsState) -> str:
    """Reason why a line would wait for too long; empty: it would not."""
    if len(own.queue) >= WAITING_MAX:
        return _FULL
    if own.open is not None and own.retry.failures > own.refusals:
        return f"what is asked for lesson {own.open.lesson} is not answered ({own.error})"
    return ""


def _taught(own: LessonsState, events: Sequence[ev.Event]) -> Iterator[tuple[str, Given, str]]:
    """(example, content of the lesson, source) for lines that are learned from now on."""
    held = {one.example for one in events if isinstance(one, ev.ExampleHeld)}
    for one in events:
        if isinstance(one, ev.ExampleAccepted) and one.lesson is not None and one.example not in held:
            yield one.example, one.lesson, one.source
        elif isinstance(one, ev.ExampleApproved) and one.example in own.offered:
            yield one.example, own.offered[one.example], one.by


def _gone(events: Sequence[ev.Event]) -> dict[str, Wish]:
    """Lines that are not to be learned any more, or are to be forgotten, with the request."""
    gone = dict[str, Wish]()
    for one in events:
        match one:
            case ev.ExampleDeclined() | ev.ExampleEdited():
                gone[one.example] = Wish(one.by, f"{one.by} took its line back")
            case ev.ExampleWithdrawn() | ev.ForgetRequested():
                reason = one.reason or f"{one.by} took its line back"
                gone.update(dict.fromkeys(one.examples, Wish(one.by, reason)))
    return gone


def _newer(events: Sequence[ev.Event], made: Mapping[str, ev.LessonGiven]) -> str:
    """The lesson of the line given in place of another one; empty: none."""
    better = (
        one.into if isinstance(one, ev.ExampleEdited) else one.example
        for one in events
        if isinstance(one, ev.ExampleEdited | ev.FeedbackGiven)
    )  # fmt: skip
    return next((made[example].lesson for example in better if example in made), "")


def _without_line(
    state: State, gone: Mapping[str, Wish], newer: str, events: Sequence[ev.Event], now_ns: int
) -> list[ev.Event]:
    """Replace the lessons of these lines by the `newer` one, or give them up and forget their practices."""
    more, own = list[ev.Event](), state.lessons
    over = {one.lesson for one in events if isinstance(one, ev.LessonGivenUp | ev.LessonReplaced)}
    for line, wish in gone.items():
        lesson = own.lessons.get(own.of_line.get(line, ""))
        if lesson is None or lesson.state in OUT or lesson.id in over:
            continue
        if newer:
            more += replaced(state, lesson, newer)
            continue
        more += [*dropped(state, lesson, wish.by, wish.reason), given_up(state, lesson, wish.reason, now_ns, wish.by)]
        practised = {example: wish for example in lesson.examples if example != line}
        more += taken_back(state, practised, places_of(state, practised), again=True)
    return more


def _unanswered(state: State, events: Sequence[ev.Event], now_ns: int) -> Iterator[ev.LessonGivenUp]:
    """Give up lessons whose lines wait for a first look if a call fails: the failed one or, if the cause is outside,
    all of them."""
    over = {one.lesson for one in events if isinstance(one, ev.LessonGivenUp | ev.LessonReplaced)}
    for one in events:
        if isinstance(one, ev.LessonFailed):
            for id_ in state.intake.first_looks.values():
                if id_ not in over and (id_ == one.lesson or one.cause in OUTSIDE):
                    over.add(id_)
                    yield given_up(state, state.lessons.lessons[id_], f"{one.stage} failed: {one.reason}", now_ns)


def _looked(state: State, events: Sequence[ev.Event], gone: Mapping[str, Wish]) -> Iterator[ev.Event]:
    """Events for the first looks that end now, with their results. Looks at other lines come before practice."""
    ended = {one.lesson for one in events if isinstance(one, ev.LessonGivenUp | ev.LessonReplaced)}
    for one in events:
        lesson = state.lessons.lessons.get(one.lesson) if isinstance(one, _LOOKED) else None
        if lesson is None or lesson.example in gone or not _waits_for_look(state, lesson):
            continue
        match one:
            case ev.LessonKnown():
                yield _found(lesson, f"the model knows it, as lesson {lesson.id} found", known=True)
            case ev.LessonGivenUp():
                yield _found(lesson, f"it is learned once: lesson {lesson.id} was given up: {one.reason}")
            case ev.LessonReplaced():
                yield _found(lesson, f"it is learned once: lesson {one.by} has another answer")
            case ev.LessonAsked(stage=Stage.TOLD) if lesson.id not in ended:
                yield _found(lesson, f"lesson {lesson.id} teaches it")
                if any(id_ != lesson.id for id_ in state.intake.first_looks.values()):
                    yield ev.LessonPutOff(lesson=lesson.id)


def _found(lesson: Lesson, reason: str, known: bool = False) -> ev.ExampleLooked:
    return ev.ExampleLooked(example=lesson.example, lesson=lesson.id, known=known, reason=reason)


def _waits_for_look(state: State, lesson: Lesson) -> bool:
    """True if the line of the lesson was neither learned nor looked at yet. Lines of logs do not wait for a look, but
    are not learned either if the model knows them. A lesson that is over has given its result already."""
    if lesson.example in state.intake.first_looks:
        return True
    first = bool(lesson.example) and lesson.state not in OUT and not lesson.steps and "bare" not in lesson.before
    return first and any(one.example == lesson.example for one in chain(*(q.waiting for q in state.intake.queues)))


HANDLERS: Handlers = {
    **ANSWERS,
    inp.LessonWanted: _on_wanted,
    inp.LessonRequested: _on_requested,
    inp.LessonUnwanted: _on_unwanted,
}
