"""Schedules dreams: which pattern is dreamt of next, and when.

One dream at a time, and one call at a time; but independent tests of a round are made at the same time while no user
uses the engine. A call is requested again and again, which is safe since it runs once at a time (its effect's key),
until an event records its outcome: so a crash or a user in between costs one more call and never a second step. Law:
the imagination of a practice never sees a tested scenario.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.dreams.course import (
    TURN,
    Imagine,
    Settle,
    Unsettle,
    kinds_of,
    measured_first,
    next_move,
    nothing_to_practise,
    spent,
    surrounding_of,
    told,
    unheld_contrast,
)
from apollod.core.facts.dreams.held_out_rounds import Case, untried
from apollod.core.facts.dreams.state import BOOTSTRAP_ROUND, SHARE_SPAN, Course, Dream, DreamsState, Stage
from apollod.core.facts.forgetting import Wish
from apollod.core.facts.judging.state import distrust
from apollod.core.kernel.composing import composed
from apollod.core.kernel.event import Event
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handler, Handlers
from apollod.core.rules.dreams.calls import ANSWERS, call_of, case_call
from apollod.core.rules.dreams.fold import FOLDS, count_learned
from apollod.core.settings import Settings
from apollod.core.shared.places import places_of, taken_back
from apollod.core.state import State

StructT = TypeVar("StructT", bound=msgspec.Struct)
SIDE_BY_SIDE = 8
"""tests of a round, and questions to our own engine, at the same time while no user is there"""
GONE = "it is gone from the configuration"
UNDONE_MAX = 6
"""total number of times that others unsettled a pattern, after which it is given up"""
CONTRADICTS = 2
"""number of times that each of two patterns unsettled the other, after which the younger one is given up"""


def _on_started(state: State, input_: inp.Started, now_ns: int) -> Outcome:
    """Compare with the configuration: add new patterns, begin changed ones anew, retire missing ones."""
    events: list[ev.Event] = []
    configured = {one.name: one for one in input_.settings.dream.pattern}
    for name, pattern in configured.items():
        course = state.dreams.courses.get(name)
        if course is None or course.pattern != pattern or (course.phase, course.reason) == ("retired", GONE):
            events += _left(state.dreams, name, "its pattern is another one now")
            events.append(ev.PatternAdded(pattern=pattern, by="config"))
    for name, course in state.dreams.courses.items():
        if course.by == "config" and course.phase != "retired" and name not in configured:
            events += _left(state.dreams, name, "its pattern is retired")
            events.append(ev.PatternRetired(pattern=name, by="config", reason=GONE))
    return Outcome(events, [])


def _left(own: DreamsState, pattern: str, reason: str) -> list[ev.Event]:
    """Abandon the dream under way, if it is of this pattern."""
    if own.open is None or own.open.pattern != pattern:
        return []
    return [ev.DreamAbandoned(dream=own.open.id, reason=reason)]


def advance(state: State, now_ns: int) -> Outcome:
    """The next call, dream or change of a pattern, if any may begin."""
    settings, own = state.daemon.settings, state.dreams
    if settings is None or state.daemon.stopping or not own.courses:
        return nothing()
    if own.at_rest and own.open is None and own.wanted is None:
        return nothing()
    if settled := _settle_matters(state, now_ns):
        return settled
    if own.open is not None and own.open.stage is Stage.LEARNING:
        return _learning(state, own.open)
    if blocked(Activity.DREAMING, state) or not own.retry.is_due(now_ns):
        return nothing()
    if own.open is not None:
        return (
            nothing()
            if _doubted(own.courses[own.open.pattern], state, settings)
            else Outcome([], [call_of(state, own.open)])
        )
    for course in in_turn(own):
        if not waits_for(course, state, settings) and (begun := _begin(state, course, settings)):
            return begun
    if own.wanted is not None and not _unfinished(own):
        return _finished("everything is settled")
    return nothing()


def _settle_matters(state: State, now_ns: int) -> Outcome:
    """Changes that follow from the state of the patterns alone, regardless of what may begin."""
    own = state.dreams
    for name, course in own.courses.items():
        if course.phase == "settled" and course.taken_back:
            reason = f"the weights with which it was settled (step {course.settled_at}) were rolled back"
            return Outcome([ev.PatternUnsettled(pattern=name, reason=reason)], [])
        if course.phase == "active" and (why := nothing_to_practise(course)):
            return Outcome([ev.PatternRetired(pattern=name, by="baseline", reason=why)], [])
        if course.phase == "active" and (why := spent(course) or _contradicted(own, name, course)):
            why += f"; at the end {told(course.final)} passed" if course.final else ""
            retired = ev.PatternRetired(pattern=name, by="budget", reason=why)
            return Outcome([*_left(own, name, "its pattern is given up"), retired], [fx.CancelDream()])
    if own.wanted is not None and own.wanted.left < 0 and own.open is None:
        return _finished("as many practices as were wanted are learned")
    return nothing()


def _contradicted(own: DreamsState, name: str, course: Course) -> str:
    """Reason if others unsettled this pattern too often, or it and an older one contradict each other; empty: none."""
    if not course.harmed_by:
        return ""
    if (undone := sum(course.harmed_by.values())) >= UNDONE_MAX:
        return f"it was undone {undone} times, by {', '.join(course.harmed_by)}"
    for other, older in own.courses.items():
        if other == name:
            return ""
        mine, its = course.harmed_by.get(other, 0), older.harmed_by.get(name, 0)
        if mine >= CONTRADICTS and its >= CONTRADICTS:
            return f"it and {other} contradict each other: where one is settled, the other one is not shown any more"
    return ""


def _finished(reason: str) -> Outcome:
    return Outcome([ev.DreamingStopped(by="apollod", reason=reason, finished=True)], [])


def _unfinished(own: DreamsState) -> bool:
    wanted = own.wanted.pattern if own.wanted is not None else ""
    return any(one.phase == "active" and wanted in ("", name) for name, one in own.courses.items())


def in_turn(own: DreamsState) -> list[Course]:
    """Patterns in the order in which they are asked for the next move: settled ones for rechecks; those that need a
    baseline or contrasts to hold, so that these are from before any practice; then the active one whose turn it is,
    until it is settled or its turn ends; then the others."""
    names = list(own.courses)
    if own.turn in names:
        at, course = names.index(own.turn), own.courses[own.turn]
        goes_on = bool(course.owed) or not course.practices or course.practices % TURN != 0
        names = names[at:] + names[:at] if goes_on else names[at + 1 :] + names[: at + 1]
    wanted = own.wanted.pattern if own.wanted is not None else ""
    courses = [own.courses[name] for name in names if wanted in ("", name) and own.courses[name].phase != "retired"]
    return sorted(
        courses,
        key=lambda one: (one.phase != "settled", not measured_first(one), not (own.holds and unheld_contrast(one))),
    )


def waits_for(course: Course, state: State, settings: Settings) -> str:
    """Reason why the pattern begins nothing now; empty: it may."""
    if doubted := _doubted(course, state, settings):
        return doubted
    move = next_move(course, state.dreams)
    return _dreamt_share(state, settings) if isinstance(move, Imagine) and move.purpose == "practice" else ""


def _dreamt_share(state: State, settings: Settings) -> str:
    """Reason why no further practice begins: the share of dreams among the last learned examples; empty: none. Tests
    are still made."""
    learned, most = state.dreams.learned, settings.dream.share_max
    if state.dreams.wanted is not None or len(learned) < SHARE_SPAN or sum(learned) <= most * len(learned):
        return ""
    return f"{sum(learned)} of the last {len(learned)} learned examples were dreamt (share_max = {most:g})"


def _doubted(course: Course, state: State, settings: Settings) -> str:
    """Reason why its answers cannot be judged now; empty: none."""
    if course.pattern.check.by_code:
        return ""
    doubt = distrust(state.judging, settings.judge.trust_min)
    return f"the judge is not trusted: {doubt}" if doubt else ""


def _begin(state: State, course: Course, settings: Settings) -> Outcome:
    own, name = state.dreams, course.pattern.name
    match next_move(course, own):
        case Imagine(purpose, mode, contrast, of) as move:
            around = surrounding_of(course, move, kinds_of(course, settings.dream))
            requested = ev.DreamRequested(
                dream=f"d{own.number + 1}", pattern=name, purpose=purpose, mode=mode, contrast=contrast, of=of,
                surrounding=around,
            )  # fmt: skip
            return Outcome([requested], [])  # `advance` is asked again
        case Case() as case:
            many = 1 if own.users else SIDE_BY_SIDE
            made = untried(course, case.round)[:many]
            return Outcome([], [case_call(course, case, own.retry.failures) for case in made])
        case Settle():
            settled = composed(
                ev.PatternSettled, course, pattern=name, step=state.training.version, tests=course.final,
                around=course.final_around,
            )  # fmt: skip
            return Outcome([settled], [])
        case Unsettle(reason):
            others = not course.round.startswith(BOOTSTRAP_ROUND)  # else the logs are the cause
            known = others and own.last_settled != name and all(one.made for one in course.tried)
            harmed_by = own.last_settled if known else ""
            why = f"{reason}, after {harmed_by} settled" if harmed_by else reason
            return Outcome([ev.PatternUnsettled(pattern=name, reason=why, harmed_by=harmed_by)], [])
    return nothing()


def _learning(state: State, dream: Dream) -> Outcome:
    """Abandon a dream whose example is not going to be learned."""
    example, intake = dream.example, state.intake
    if any(one.example == example for one in (*intake.direct.waiting, *intake.taken)):
        return nothing()
    why = f"its example is not learned: `apollod ctl why {example}` says why"
    return Outcome([ev.DreamAbandoned(dream=dream.id, reason=why)], [])


def _on_use(state: State, input_: inp.EngineUse, now_ns: int) -> Outcome:
    """Give way to users: abort the call under way, and repeat it when they are gone."""
    own, settings = state.dreams, state.daemon.settings
    if settings is None or (input_.users, input_.reason) == (own.users, own.users_reason):
        return nothing()
    if not input_.users:
        return Outcome([ev.EngineIdle(seconds=settings.dream.idle_s)], [])
    gives_way = settings.dream.mode == "idle" and own.wanted is None
    return Outcome([ev.EngineBusy(reason=input_.reason)], [fx.CancelDream()] if gives_way else [])


def _on_pattern_wanted(state: State, input_: inp.PatternWanted, now_ns: int) -> Outcome:
    left = _left(state.dreams, input_.pattern.name, "its pattern is another one now")
    effects: list[fx.Effect] = [fx.CancelDream()] if left else []
    return Outcome([*left, ev.PatternAdded(pattern=input_.pattern, by=input_.by)], effects)


def _on_pattern_unwanted(state: State, input_: inp.PatternUnwanted, now_ns: int) -> Outcome:
    course, name = state.dreams.courses.get(input_.pattern), input_.pattern
    if course is None:
        return nothing()
    out = _forgotten(state, course, input_.by) if input_.forget else []
    if course.phase == "retired":
        return Outcome(out, [])
    left = _left(state.dreams, name, "its pattern is retired")
    reason = f"{input_.by} had {name} forgotten" if input_.forget else f"retired by {input_.by}"
    retired = ev.PatternRetired(pattern=name, by=input_.by, reason=reason)
    return Outcome([*left, retired, *out], [fx.CancelDream()] if left else [])


def _forgotten(state: State, course: Course, by: str) -> list[ev.Event]:
    """Events that take everything its dreams taught, or are to teach, out of queue and weights."""
    reason = f"{by} had {course.pattern.name} forgotten"
    wishes = {example: Wish(by, reason) for example in course.examples}
    places = places_of(state, wishes)
    waiting = tuple(example for example, place in places.items() if place.state == "pending")
    withdrawn = [ev.ExampleWithdrawn(examples=waiting, by=by, reason=reason)] if waiting else []
    return [*withdrawn, *taken_back(state, wishes, places, again=True)]


def _on_wanted(state: State, input_: inp.DreamingStarted, now_ns: int) -> Outcome:
    return Outcome([input_], [])


def _on_unwanted(state: State, input_: inp.DreamingStopped, now_ns: int) -> Outcome:
    return nothing() if state.dreams.stopped else Outcome([input_], [fx.CancelDream()])


def _and_next(answered: Handler) -> Handler:
    """Record an answer that settles a dream together with the request of the next one, if one follows at once: this
    saves an append."""

    def run(state: State, input_: Any, now_ns: int) -> Outcome:
        outcome = answered(state, input_, now_ns)
        if not outcome.events or not isinstance(outcome.events[-1], ev.DreamSettled):
            return outcome
        running = state.training.running
        learned = running.examples if isinstance(input_, inp.StepDone) and running is not None else ()
        follows = advance(_foreseen(state, outcome.events, learned, now_ns), now_ns)
        return outcome.then(follows) if follows.find(ev.DreamRequested) is not None else outcome

    return run


def _foreseen(state: State, events: Sequence[Event], learned: Sequence[str], now_ns: int) -> State:
    """The state after `events` of the dream under way, preceded by a step that learned these examples, so that certain
    consequences are recorded with them. A copy is folded, by the same folds; only the slice of dreams changes."""
    own = _copied(state.dreams)
    assert own.open is not None
    own.open = _copied(own.open)
    own.courses[own.open.pattern] = _copied(own.courses[own.open.pattern])
    own.wanted = None if own.wanted is None else _copied(own.wanted)
    count_learned(own, learned)
    for event in events:
        if (fold := FOLDS.get(type(event))) is not None:
            fold(own, state, event, now_ns)
    return msgspec.structs.replace(state, dreams=own)


def _copied(whole: StructT) -> StructT:
    """A copy with its own lists and dicts; their items are shared."""
    values = {name: getattr(whole, name) for name in whole.__struct_fields__}
    own = {name: value.copy() for name, value in values.items() if isinstance(value, list | dict)}
    return msgspec.structs.replace(whole, **own)


HANDLERS: Handlers = {
    **{answer: _and_next(handler) for answer, handler in ANSWERS.items()},
    inp.Started: _on_started,
    inp.EngineUse: _on_use,
    inp.PatternWanted: _on_pattern_wanted,
    inp.PatternUnwanted: _on_pattern_unwanted,
    inp.DreamingStarted: _on_wanted,
    inp.DreamingStopped: _on_unwanted,
}
