"""Folds the events of sources and examples into the queue."""

import msgspec

from apollod.core import events as ev
from apollod.core.facts.intake.state import SPAN, Blocked, IntakeCounts, IntakeState, Kin, Position, Queue, Waiting
from apollod.core.kernel.policy import Folds
from apollod.core.shared.repeating import repeats
from apollod.core.state import State


def _source_consumed(own: IntakeState, state: State, e: ev.SourceConsumed, at_ns: int) -> None:
    position = Position(e.source, e.offset, e.line, e.tail, e.cursor)
    own.sources[position.file] = position


def _source_quarantined(own: IntakeState, state: State, e: ev.SourceQuarantined, at_ns: int) -> None:
    own.counts.rejected += 1


def _source_blocked(own: IntakeState, state: State, e: ev.SourceBlocked, at_ns: int) -> None:
    own.blocked[e.path] = Blocked(e.mode, e.place, e.reason, e.hint, at_ns)


def _source_unblocked(own: IntakeState, state: State, e: ev.SourceUnblocked, at_ns: int) -> None:
    own.blocked.pop(e.path, None)


def _accepted(own: IntakeState, state: State, e: ev.ExampleAccepted, at_ns: int) -> None:
    own.counts.accepted += 1
    if e.again_of:
        own.again[e.example] = e.again_of
    kin = Kin(e.source.partition("~")[0], e.origin.session, e.topic)
    own.queue_of(e.tier).append(Waiting(e.example, tier=e.tier, kin=kin, since_ns=at_ns))


def _duplicate(own: IntakeState, state: State, e: ev.ExampleDuplicate, at_ns: int) -> None:
    own.counts.duplicates += 1


def _encoded(own: IntakeState, state: State, e: ev.ExampleEncoded, at_ns: int) -> None:
    queue = own.bulk.untokenised  # nearly always
    if not queue or queue[0].example != e.example:
        queue = _tokenised_next(own, e.example).untokenised
    waiting = queue.popleft()
    waiting.digest, waiting.objective, waiting.tokens = e.digest, e.objective, e.tokens
    if e.objective == "kto":
        own.ratings[e.example] = waiting.tier


def _rejected(own: IntakeState, state: State, e: ev.ExampleRejected, at_ns: int) -> None:
    own.counts.rejected += 1
    _tokenised_next(own, e.example).drop_untokenised()
    own.first_looks.pop(e.example, None)


def _lesson_given(own: IntakeState, state: State, e: ev.LessonGiven, at_ns: int) -> None:
    if e.example and any(one.example == e.example for one in reversed(own.direct.waiting)):
        own.first_looks[e.example] = e.lesson


def _looked(own: IntakeState, state: State, e: ev.ExampleLooked, at_ns: int) -> None:
    own.first_looks.pop(e.example, None)
    for queue in own.queues if e.known else ():
        queue.take(e.example)


def _lessons_carried(own: IntakeState, state: State, e: ev.LessonsCarried, at_ns: int) -> None:
    own.first_looks = dict(e.first_looks)


def _tokenised_next(own: IntakeState, example: str) -> Queue:
    """The queue in which this example is the first one without tokens."""
    for queue in own.queues:
        if queue.untokenised and queue.untokenised[0].example == example:
            return queue
    raise LookupError(f"example {example} is not the next one to be tokenised")


def _daemon_started(own: IntakeState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.ratings_per_step = e.settings.preferences.ratings_per_step


def _take(own: IntakeState, example: str, digest: str, objective: str, tier: ev.Tier) -> Waiting:
    """Take an example that a step names out of its queue: the first one there, or one of those within reach of
    `core.facts.intake.state`. Also in old journals without an order of tiers it is the first one, because they took the
    examples of each tier in the same order. `tier`: tier of an example that is in no queue, as when a step is
    repeated."""
    for waiting in (own.direct.waiting, own.bulk.waiting):
        if waiting and waiting[0].example == example and waiting[0].digest:
            return waiting.popleft()
    found = next((one for queue in own.queues if (one := queue.take(example)) is not None), None)
    if found is not None and found.digest == digest:
        return found
    # Decided by an unknown version of apollod; the event is the truth.
    return Waiting(example, digest, found.tier if found else tier, objective=objective)


def _step_started(own: IntakeState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    _take_all(own, e, _tier_of_repeated(state, e))
    for example in ev.all_examples(e):
        own.scores.pop(example, None)
        own.first_looks.pop(example, None)
        own.ratings.pop(example, None)
    own.recent += [one.kin for one in own.taken if one.tier == "bulk"]
    if len(own.recent) >= SPAN:
        del own.recent[: len(own.recent) - SPAN + 1]


def _tier_of_repeated(state: State, e: ev.StepStarted) -> ev.Tier:
    """Tier of the step that this one repeats."""
    repeated = repeats(state) if e.again_of else ()
    return next((one.tier for one in repeated if one.number == e.again_of), "bulk")


def _take_all(own: IntakeState, e: ev.StepStarted, tier: ev.Tier) -> None:
    if not e.examples:  # nearly always
        own.taken = (_take(own, e.example, e.digest, e.objective, tier),)
        return
    digests = ev.all_digests(e)
    own.taken = tuple(
        [_take(own, one, digest, e.objective, tier) for one, digest in zip(ev.all_examples(e), digests, strict=True)]
    )


def _step_completed(own: IntakeState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    for one in own.taken if own.undone else ():  # a step that was taken back is repeated
        own.undone.pop(one.example, None)
    own.taken = ()


def _step_failed(own: IntakeState, state: State, e: ev.StepFailed, at_ns: int) -> None:
    """Put the examples of a failed step back, or set them aside as held; undone ones that it was to repeat stay
    undone."""
    taken, own.taken = own.taken, ()
    if e.apart:
        left = [one for one in taken if one.example not in own.undone]
        again = [msgspec.structs.replace(one, alone=True, holds_one=one.holds_one or e.fewer) for one in left]
        for one in reversed(again):
            own.queue_of(one.tier).waiting.appendleft(one)
    else:
        own.away |= {one.example: one.kin for one in taken}
        for one in taken:
            own.undone.pop(one.example, None)


def _scored(own: IntakeState, state: State, e: ev.ExampleScored, at_ns: int) -> None:
    if not e.after:
        own.scores[e.example] = e.divergence


def _rollback_started(own: IntakeState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    own.undone |= dict.fromkeys(e.examples)


def _withdrawn(own: IntakeState, state: State, e: ev.ExampleWithdrawn, at_ns: int) -> None:
    own.withdraw(e.examples)
    for example in e.examples:
        own.undone.pop(example, None)


def _requeued(own: IntakeState, state: State, e: ev.ExampleRequeued, at_ns: int) -> None:
    own.undone.pop(e.example, None)
    own.withdrawn.pop(e.example, None)
    own.come_back(e.example, e.tier, at_ns)


def _not_waiting(
    own: IntakeState, state: State, e: ev.ExampleHeld | ev.ExampleDeclined | ev.ExampleEdited, at_ns: int
) -> None:
    own.undone.pop(e.example, None)
    if not isinstance(e, ev.ExampleHeld):
        own.scores.pop(e.example, None)
    own.leave(e.example, e.tier)


def _approved(own: IntakeState, state: State, e: ev.ExampleApproved, at_ns: int) -> None:
    own.come_back(e.example, e.tier, at_ns)


def _expired(own: IntakeState, state: State, e: ev.ExampleExpired, at_ns: int) -> None:
    """Remove expired examples: waiting ones come first in their queue; held ones are in none."""
    for example in e.examples:
        own.scores.pop(example, None)
        if e.waiting:
            own.leave(example, "bulk")


def _window_opened(own: IntakeState, state: State, e: ev.WindowOpened, at_ns: int) -> None:
    own.recent = []


def _carried(own: IntakeState, state: State, e: ev.JournalCarried, at_ns: int) -> None:
    own.counts = IntakeCounts(e.accepted, e.rejected, e.duplicates)
    alone = frozenset(e.alone)
    for queue in own.queues if alone else ():
        for waiting in queue.waiting:
            if waiting.example in alone:
                waiting.alone = True
                own.ratings.pop(waiting.example, None)


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.SourceConsumed: _source_consumed,
    ev.SourceQuarantined: _source_quarantined,
    ev.SourceBlocked: _source_blocked,
    ev.SourceUnblocked: _source_unblocked,
    ev.ExampleAccepted: _accepted,
    ev.ExampleDuplicate: _duplicate,
    ev.ExampleEncoded: _encoded,
    ev.ExampleRejected: _rejected,
    ev.ExampleLooked: _looked,
    ev.LessonGiven: _lesson_given,
    ev.LessonsCarried: _lessons_carried,
    ev.ExampleWithdrawn: _withdrawn,
    ev.ExampleRequeued: _requeued,
    ev.ExampleHeld: _not_waiting,
    ev.ExampleDeclined: _not_waiting,
    ev.ExampleEdited: _not_waiting,
    ev.ExampleApproved: _approved,
    ev.ExampleExpired: _expired,
    ev.WindowOpened: _window_opened,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.ExampleScored: _scored,
    ev.RollbackStarted: _rollback_started,
    ev.JournalCarried: _carried,
}
