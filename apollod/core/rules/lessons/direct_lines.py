"""Makes lessons of lines that are given directly.

Law: a given line always gets at least a step. It waits for the first look of its lesson (wordings, bare and told
answers of the model), and is then learned as without a lesson, regardless of the result, unless the model knows it. A
line that is taken back takes its lesson with it. Every decision passes through `with_lessons`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core.facts.forgetting import Wish
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.stages import Stage
from apollod.core.facts.lessons.state import OUT, OUTSIDE, Lesson, LessonsState
from apollod.core.kernel.outcome import Outcome
from apollod.core.rules.lessons.replies import given_up
from apollod.core.rules.lessons.standing import dropped, replaced
from apollod.core.shared.places import places_of, taken_back
from apollod.core.state import State

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
