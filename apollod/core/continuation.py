"""Builds the first events of a journal that continues an archived one: few events that fold to the same state.

Pure. Events of the archive are taken over as they are, with their times, wherever one of them holds what is needed; the
rest is in `journal.carried`. So only the law of events binds later versions, and no form of the state is written down.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec

from apollod.core import events as ev
from apollod.core.facts.alignment import AlignmentState
from apollod.core.facts.bootstrap import bootstraps_taken_over
from apollod.core.facts.children import ChildrenState
from apollod.core.facts.environments import EnvironmentsState
from apollod.core.facts.followups import FollowUpsState
from apollod.core.facts.forgetting import ForgettingState
from apollod.core.facts.intake.state import Kin, Queue, Waiting
from apollod.core.facts.judging.state import JudgingState
from apollod.core.facts.publishing import PublishingState
from apollod.core.facts.rescoring import RescoringState
from apollod.core.facts.review import ReviewState
from apollod.core.facts.schedule import ScheduleState
from apollod.core.facts.scoring import ScoringState
from apollod.core.facts.updates import UpdatesState
from apollod.core.kernel.composing import carried, composed
from apollod.core.rules.dreams.continuing import DreamNotes, carried_dreams
from apollod.core.schedules import NO_FAILURE
from apollod.core.shared.archive_notes import (
    AnchorNotes,
    LessonNotes,
    QualityNotes,
    carried_holding,
    carried_lessons,
    carried_quality,
)
from apollod.core.state import State

NAMED_MAX = 1000
"""examples named by one event"""

Dated = tuple[int, ev.Event]
"""A time (ns since 1970) and its event."""

Lessons = Callable[[Sequence[str]], Iterator[tuple[Dated, Dated | None]]]
"""Acceptance and newest tokenisation (None: none) of each of these examples, in their order."""


class Archive(NamedTuple):
    """The journal that ended: where its copy lies, and its last event. `head_hash`: hex."""

    path: str
    events: int
    head_hash: str


class Notes:
    """Events of the archive that the next journal takes over, collected in one pass over the archive."""

    def __init__(self) -> None:
        self._newest: dict[type[ev.Event], Dated] = {}
        self._committed: dict[str, Dated] = {}
        self._discovered: dict[str, Dated] = {}
        self._consumed: dict[str, tuple[int, ev.SourceConsumed]] = {}
        self._blocked: dict[str, Dated] = {}
        self._scored: dict[str, Dated] = {}
        self.dreams = DreamNotes()
        self.lessons = LessonNotes()
        self.anchors = AnchorNotes()
        self.quality = QualityNotes()

    def see(self, recorded: ev.Recorded) -> None:
        """Note the next event."""
        event, dated = recorded.event, (recorded.at_ns, recorded.event)
        self.dreams.see(recorded)
        self.lessons.see(recorded)
        self.anchors.see(recorded)
        self.quality.see(recorded)
        match event:
            case ev.CheckpointCommitted(path=path):
                self._committed[path] = dated
            case ev.SourceDiscovered(source=source):
                self._discovered.setdefault(source, dated)
            case ev.SourceConsumed():
                self._consumed[event.source] = recorded.at_ns, self._with_totals(event)
            case ev.SourceBlocked(path=path):
                self._blocked[path] = dated
            case ev.ExampleScored(example=example, after=0):
                self._scored[example] = dated
            case ev.StepStarted() if self._scored:
                for example in ev.all_examples(event):
                    self._scored.pop(example, None)
            case _ if type(event) in _ONE_OF_A_KIND:
                self._newest[_ONE_OF_A_KIND[type(event)]] = dated

    def _with_totals(self, event: ev.SourceConsumed) -> ev.SourceConsumed:
        """The position of a source with its totals."""
        if event.source not in self._consumed:
            return event
        _, before = self._consumed[event.source]
        counts = Counter(before.counts) + Counter(event.counts)
        return msgspec.structs.replace(
            event, counts=dict(counts), accepted=before.accepted + event.accepted,
            duplicates=before.duplicates + event.duplicates, rejected=before.rejected + event.rejected,
            unlearned=before.unlearned + event.unlearned,
        )  # fmt: skip

    def taken_over(self, state: State) -> Iterator[Dated]:
        """Events that fold to the daemon, sources and checkpoints of `state`, in order."""
        daemon, checkpoints = state.daemon, state.checkpoints
        yield self._newest[ev.DaemonStarted]
        if daemon.paused:
            yield self._newest[ev.TrainingPaused]
        for position in state.intake.sources.values():
            if position.source in self._discovered:
                yield self._discovered[position.source]
            yield self._consumed[position.source]
        yield from (self._blocked[path] for path in state.intake.blocked)
        if ev.BaseKept in self._newest:
            yield self._newest[ev.BaseKept]
        if checkpoints.removed:
            yield self._newest[ev.CheckpointRemoved]
        yield from (self._committed[kept.path] for kept in checkpoints.committed)
        if checkpoints.hook_due is None and ev.HookCompleted in self._newest:
            yield self._newest[ev.HookCompleted]

    def scores(self, state: State) -> Iterator[Dated]:
        """Scores of the examples that are taken over: the learning order depends on them."""
        yield from (self._scored[example] for example in _scores(state))


_ONE_OF_A_KIND: dict[type[ev.Event], type[ev.Event]] = {
    ev.DaemonStarted: ev.DaemonStarted, ev.TrainingPaused: ev.TrainingPaused, ev.BaseKept: ev.BaseKept,
    ev.BaseLost: ev.BaseKept, ev.CheckpointRemoved: ev.CheckpointRemoved, ev.HookCompleted: ev.HookCompleted,
    ev.HookFailed: ev.HookCompleted,
}  # fmt: skip
"""Event types of which only the newest counts, mapped to the type under which it is kept."""


def obstacle(state: State) -> str:
    """Reason why the journal cannot be continued from its present end; empty: none."""
    newest, training = state.checkpoints.newest, state.training
    if newest is None:
        return "there is no checkpoint yet at which the next journal could begin"
    if training.running is not None or state.checkpoints.open is not None:
        return "a step or a checkpoint is not finished"
    if state.rollback.wanted is not None or state.rollback.under_way is not None:
        return "a rollback is not finished"
    if state.forgetting.under_way is not None:
        return "what was taken back is being forgotten"
    if count := len(state.forgetting.wanted):
        return f"{count} examples are to be forgotten, which only this journal can (the daemon does, once it trains)"
    if state.quality.incident is not None:
        return "an alarm of the quality guard is not settled (`apollod ctl resume` settles it)"
    if state.quality.telling.waiting:
        return "an alarm of the quality guard was not told yet, see [quality] on_alarm"
    if state.bootstrap.current is not None and state.bootstrap.current.under_way:
        return "a bootstrap is not finished (`apollod ctl bootstrap --stop` ends it; asked again it goes on)"
    if state.unsaved or newest.step != training.version:
        return f"the weights are of step {training.version}, the newest checkpoint is of step {newest.step}"
    return ""


def continuation(
    state: State,
    notes: Notes,
    archive: Archive,
    settled: Iterable[str],
    lessons: Lessons,
    at_ns: int,
    responses: Iterable[str] = (),
    signals: Iterable[str] = (),
) -> Iterator[Dated]:
    """The events of the next journal, in order. `state`: at the end of the archive, where nothing is an `obstacle`;
    `settled`: accepted examples that neither wait nor can be requested again, see `kept_examples`; `responses`: keys of
    the answers that these taught; `signals`: ids of the archive's evidence."""
    newest, training, intake = state.checkpoints.newest, state.training, state.intake
    assert newest is not None
    yield at_ns, ev.JournalContinued(
        archive=archive.path, events=archive.events, head_hash=archive.head_hash, step=training.version,
        fingerprint=training.fingerprint, checkpoint=newest.path, last_step=training.step,
    )  # fmt: skip
    yield from notes.taken_over(state)
    for named in _parts(intake.undone | intake.withdrawn):
        yield from (accepted for accepted, _ in lessons(named))
        yield at_ns, ev.ExampleWithdrawn(examples=named, by="archive")
    yield from _held(state, lessons)
    for queue in intake.queues:
        yield from _waiting(list(queue.waiting), lessons)
    yield from notes.scores(state)
    for named in _parts(settled):
        yield at_ns, ev.ExampleCarried(examples=named)
    for keys in _parts(responses):
        yield at_ns, ev.ExampleCarried(examples=(), responses=keys)
    for ids in _parts(signals):
        yield at_ns, ev.ExampleCarried(examples=(), signals=ids)
    yield from bootstraps_taken_over(state.bootstrap, at_ns)
    yield from notes.dreams.taken_over(state.dreams, at_ns)
    yield from notes.lessons.taken_over(state.lessons, intake.first_looks, at_ns)
    yield from notes.anchors.taken_over(state.holding, at_ns)
    yield from notes.quality.taken_over(state.quality)
    for name, one in state.environments.named.items():
        yield at_ns, carried(ev.EnvironmentCarried, one, environment=name)
    if state.updates.last:
        yield at_ns, carried(ev.UpdatesCarried, state.updates)
    yield at_ns, _totals(state)


def kept_examples(state: State) -> set[str]:
    """Examples taken over with their records: waiting ones, and those that can be requested again."""
    waiting = (one.example for queue in state.intake.queues for one in queue.waiting)
    return {*waiting, *state.review.held, *state.intake.undone, *state.intake.withdrawn}


def _waiting(queue: list[Waiting], lessons: Lessons) -> Iterator[Dated]:
    for one, ((at_ns, accepted), encoded) in zip(queue, lessons([one.example for one in queue]), strict=True):
        assert isinstance(accepted, ev.ExampleAccepted)
        yield one.since_ns or at_ns, msgspec.structs.replace(accepted, tier=one.tier)
        if one.digest and encoded is not None:
            yield encoded


def _held(state: State, lessons: Lessons) -> Iterator[Dated]:
    """Events of examples that wait for a decision; declined ones are settled."""
    held = state.review.held
    for (id_, one), ((at_ns, accepted), _) in zip(held.items(), lessons(list(held)), strict=True):
        assert isinstance(accepted, ev.ExampleAccepted)
        yield at_ns, msgspec.structs.replace(accepted, tier=one.tier)
        by = "judge" if id_ in state.judging.written else ""
        yield one.since_ns, ev.ExampleHeld(id_, one.tier, one.reason, one.waits_for, by)


def _parts(examples: Iterable[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(examples)
    while part := tuple(islice(rest, NAMED_MAX)):
        yield part


def _totals(state: State) -> ev.JournalCarried:
    intake, training, w = state.intake, state.training, state.training.window
    window = None
    if w is not None:
        window = composed(ev.CarriedWindow, w)
    alone = tuple(one.example for one in chain(*(queue.waiting for queue in intake.queues)) if one.alone)
    return composed(
        ev.JournalCarried, intake.counts, training.counts, state.feedback, state.preferences,
        model_path=state.daemon.model_path, base_fingerprint=state.recovery.base_fingerprint,
        last_step_ns=training.last_step_ns, windows=training.windows, window=window, alone=alone,
        measurements=state.quality.number, alarms=state.quality.incidents,
        alarms_ns=state.quality.alarms_ns, measurements_failed=state.quality.totals.failed,
        steps_taken_back=state.quality.totals.taken_back, search_replays=state.quality.totals.replays,
        approved=tuple(_approved(state)),
    )  # fmt: skip


def _scores(state: State) -> dict[str, float]:
    kept = kept_examples(state) if state.intake.scores else set()
    return {example: score for example, score in state.intake.scores.items() if example in kept}


def _approved(state: State) -> dict[str, None]:
    """Approved examples that are still queued: later evidence does not hold them."""
    waiting = chain(*(queue.waiting for queue in state.intake.queues))
    return dict.fromkeys(sorted(one.example for one in waiting if one.example in state.review.approved))


def carried_state(state: State) -> State:
    """Remove from a state what the next life makes anew and what a continuation does not take over: the result is the
    same before and after.

    Steps taken back by a rollback are withdrawn afterwards: both can be learned again on request. An example's kin is
    known afterwards for all waiting examples, before only for those that were not learned once.
    """
    replace: Any = msgspec.structs.replace
    intake, recovery = state.intake, state.recovery
    daemon = replace(
        state.daemon, halted="", stopping=False, stopping_since_ns=0, stopped=False, continued=None,
        paused_by=state.daemon.paused_by if state.daemon.paused else "",
    )  # fmt: skip
    after: State = replace(
        state, seq=0, daemon=daemon, children=ChildrenState(), publishing=PublishingState(), alignment=AlignmentState(),
        schedule=ScheduleState(), scoring=ScoringState(), rescoring=RescoringState(),
        followups=FollowUpsState(model=state.followups.model, question=state.followups.question),
        quality=carried_quality(state.quality),
        intake=replace(
            intake, ratings_per_step=1, again=_taught_again(state), undone={}, away={}, recent=[],
            withdrawn=intake.undone | intake.withdrawn, scores=_scores(state), direct=_without_kin(intake.direct),
            bulk=_without_kin(intake.bulk),
        ),
        review=ReviewState(held=state.review.held, approved=_approved(state)), dreams=carried_dreams(state.dreams),
        lessons=carried_lessons(state.lessons), holding=carried_holding(state.holding),
        environments=_carried_environments(state),
        updates=composed(UpdatesState, carried(ev.UpdatesCarried, state.updates)),
        judging=JudgingState(waiting=state.judging.waiting, written=state.judging.written),
        training=replace(state.training, unlearned=0, recent=[]),
        recovery=replace(recovery, learned_with=None, ran_on={}, products="bf16", since_ns=0),
        checkpoints=replace(state.checkpoints, last_one_failed=False, retry_ns=0),
        rollback=replace(state.rollback, started_ns=0), forgetting=ForgettingState(),
    )  # fmt: skip
    return after


def _carried_environments(state: State) -> EnvironmentsState:
    """Environments without their failures, which begin anew."""
    return EnvironmentsState(
        {
            name: msgspec.structs.replace(one, attempts={}, retry=NO_FAILURE)
            for name, one in state.environments.named.items()
        }
    )


def _taught_again(state: State) -> dict[str, str]:
    """Repetitions whose example is taken over, with the example that each repeats."""
    kept = kept_examples(state) if state.intake.again else set()
    return {one: of for one, of in state.intake.again.items() if one in kept}


def _without_kin(queue: Queue) -> Queue:
    waiting = deque(msgspec.structs.replace(one, kin=Kin()) for one in queue.waiting)
    return Queue(waiting, deque(islice(waiting, len(waiting) - len(queue.untokenised), None)))
