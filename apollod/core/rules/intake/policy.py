"""Turns lines into events, has examples tokenised, and notes what cannot be read.

Law: nothing is read or parsed here. Adapters pass complete lines, already classified as records or bad lines; this file
decides which events follow, and that an example is accepted once, even if its line comes again.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.inputs import Obstruction
from apollod.core.facts.intake.repeats import Known, Repeated
from apollod.core.facts.review import is_held
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome
from apollod.core.kernel.policy import Handlers
from apollod.core.rules.intake.accepting import accepted, begin_encoding, held_for_leak, renewed, teachable
from apollod.core.rules.intake.by_evidence import Shown, decided_since
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import JudgeMode
from apollod.core.state import State

WITHDRAWN_MAX = 10_000  # examples named by one event


def intake_events(
    batch: inp.Batch,
    known: set[str],
    responses: Mapping[str, str] = {},
    signatures: Mapping[str, str] = {},
    flagged: Collection[str] = (),
    judge: JudgeMode = "off",
    again: Mapping[str, inp.Taught] = {},
) -> list[ev.Event]:
    """Events of a batch, to be appended in one transaction. `judge`: examples that wait for it; `again`: by id,
    examples that may be taught again. For the others see `LinesRead`.

    The position comes last and in the same transaction as the events of its lines, so that a line is taken exactly once
    in spite of crashes.
    """
    events: list[ev.Event] = []
    if batch.new:
        events.append(composed(ev.SourceDiscovered, batch))
    told, recorded, shown = Known(known, responses, signatures), set(flagged), Shown(flagged)
    taken = duplicates = rejected = 0
    for line in batch.lines:
        if not line.example and not line.reason:
            pass  # it only holds evidence
        elif not line.example:
            rejected += 1
            events.append(_quarantined(batch, line))
        elif not isinstance(sifted := told.sift(line, batch.near_duplicate), Repeated):
            taken += 1
            shown.accept(sifted[0])
            events += _accepted(batch, *sifted)
        elif (anew := renewed(line, line.tier or batch.tier, sifted, again)) and told.renew(anew[0].example):
            taken += 1
            shown.accept(anew[0])
            events += _accepted(batch, anew[0], again_of=anew[1])
        else:
            duplicates += 1
            events.append(composed(ev.ExampleDuplicate, line, batch, sifted, line=line.number))
        events += _flagged(batch, line, told, recorded, shown)
    if batch.tracked:
        events.append(
            composed(ev.SourceConsumed, batch, accepted=taken, duplicates=duplicates, rejected=rejected)
        )  # fmt: skip
    return list(_with_decisions(events, shown, batch, judge))


def _with_decisions(events: list[ev.Event], shown: Shown, batch: inp.Batch, judge: JudgeMode) -> Iterator[ev.Event]:
    """Add holds for evidence or the judge to examples that are not held for a person."""
    for_a_person = {event.example for event in events if isinstance(event, ev.ExampleHeld)}
    for event in events:
        yield event
        if isinstance(event, ev.ExampleAccepted) and event.example not in for_a_person:
            if (held := shown.held(event, batch.learn, judge)) is not None:
                yield held
            elif batch.judged:
                yield ev.ExampleHeld(example=event.example, tier=event.tier, reason=batch.judged, waits_for="judge")


def _flagged(
    batch: inp.Batch, line: inp.Line, told: Known, recorded: set[str], shown: Shown
) -> Iterator[ev.SignalFlagged]:
    """Evidence in the line that is not recorded yet; adds it to `recorded`, and all evidence of the line to `shown`."""
    for one in line.evidence:
        signal = one.id
        example = told.learner(line, one.answer)
        others = chain.from_iterable(told.learners(line, key) for key in (one.answer, *one.turn))
        also = tuple(dict.fromkeys(other for other in others if other != example))
        for learns in (example, *also):
            shown.add(learns, one)
        if signal in recorded:
            continue
        recorded.add(signal)
        yield composed(
            ev.SignalFlagged, one, signal=signal, cue=one.kind, example=example, source=batch.source, line=line.number,
            also=also,
        )  # fmt: skip


def _accepted(batch: inp.Batch, line: inp.Line, repeated: tuple[str, ...] = (), again_of: str = "") -> list[ev.Event]:
    tier = line.tier or batch.tier
    taken = accepted(line, batch.source, tier, line.number, repeated=repeated, again_of=again_of)
    if held := held_for_leak(taken, line):
        return [taken, *held]
    example = taken.example
    if is_held(example, tier, batch.hold):
        reason = "its source is reviewed" if batch.hold == 1.0 else "a sample of its source is reviewed"
        return [taken, ev.ExampleHeld(example=example, tier=tier, reason=reason)]
    return [taken]


def _quarantined(batch: inp.Batch, line: inp.Line) -> ev.SourceQuarantined:
    return composed(ev.SourceQuarantined, batch, line, line=line.number)


def _on_lines(state: State, input_: inp.LinesRead, now_ns: int) -> Outcome:
    judge: JudgeMode = state.daemon.settings.judge.mode if state.daemon.settings else "off"
    teach = teachable(state, input_.taught) if input_.taught else {}
    events = intake_events(
        input_.batch, set(input_.known), input_.responses, input_.signatures, input_.flagged, judge, teach
    )
    held = {e.example for e in events if isinstance(e, ev.ExampleHeld)}
    taken = {e.example: e.tier for e in events if isinstance(e, ev.ExampleAccepted)}
    wait = [(example, tier) for example, tier in taken.items() if example not in held]
    if input_.batch.learn != "all":
        late = [e for e in events if isinstance(e, ev.SignalFlagged) and not taken.keys() >= {e.example, *e.also}]
        again = decided_since(state, late, taken) if late else []
        end = len(events) - input_.batch.tracked  # the position comes last
        events[end:end] = again
        wait += [(e.example, e.tier) for e in again if isinstance(e, ev.ExampleApproved)]
    return Outcome(events, begin_encoding(state, wait))


def _on_withdraw(state: State, input_: inp.ExampleWithdrawn, now_ns: int) -> Outcome:
    """Take waiting examples out of the queue; others, and those being learned, are left alone."""
    wanted = frozenset(input_.examples)
    queues = state.intake.queues
    waiting = [one.example for queue in queues for one in queue.waiting if one.example in wanted]
    events: list[ev.Event] = [
        ev.ExampleWithdrawn(examples=tuple(waiting[at : at + WITHDRAWN_MAX]), by=input_.by)
        for at in range(0, len(waiting), WITHDRAWN_MAX)
    ]
    return Outcome(events, [])


def _on_relearn(state: State, input_: inp.RelearnRequested, now_ns: int) -> Outcome:
    """Put undone and withdrawn examples back at the end of the queue of their tier; not those that a step is repeating
    now."""
    out = state.intake.undone.keys() | state.intake.withdrawn.keys()
    out -= {one.example for one in state.intake.taken}
    wanted = {example: tier for example, tier in input_.examples if example in out}
    events: list[ev.Event] = [
        ev.ExampleRequeued(example=example, tier=tier, by=input_.by) for example, tier in wanted.items()
    ]
    return Outcome(events, begin_encoding(state, list(wanted.items())))


def _on_encoded(state: State, input_: inp.EncodeDone, now_ns: int) -> Outcome:
    """Record token counts or the refusal, and ask for the next ones."""
    events: list[ev.Event] = []
    queues = [iter(queue.untokenised) for queue in state.intake.queues]
    heads = [next(queue, None) for queue in queues]
    for result in input_.results:
        place = next((n for n, head in enumerate(heads) if head is not None and head.example == result.example), None)
        if place is None:
            continue  # it was withdrawn, or this answers a question of an earlier attachment
        heads[place] = next(queues[place], None)
        if result.refused:
            events.append(ev.ExampleRejected(example=result.example, reason=result.refused))
        else:
            weights = (0 if result.untrained else state.training.version) if result.file else -1
            events.append(composed(ev.ExampleEncoded, result, weights=weights))
    rest = (waiting for head, queue in zip(heads, queues, strict=True) if head for waiting in chain((head,), queue))
    return Outcome(events, fx.encode((waiting.example for waiting in rest), state.recovery.base_fingerprint))


BLOCKED_MAX = 64
"""most paths of one place that are named; one entry stands for the rest"""
PASSING_S = 60.0
"""seconds after which a temporary obstruction is reported: the writer of a database often locks it for a moment"""


def on_look(state: State, input_: inp.PlaceLooked, now_ns: int) -> Outcome:
    """Record the difference between the scan and the known unreadable paths. A path in two places is reported for the
    place that found it first."""
    known = state.intake.blocked
    own = {path for path, one in known.items() if (one.mode, one.place) == (input_.mode, input_.place)}
    blocked = _named(input_, own)
    events: list[ev.Event] = [
        composed(ev.SourceBlocked, input_, why, path=path)
        for path, why in sorted(blocked.items())
        if (path in own or path not in known) and _is_news(known[path].reason if path in own else "", why)
    ]
    if input_.complete:
        events += [ev.SourceUnblocked(path=path) for path in sorted(own - blocked.keys())]
    return Outcome(events, [])


def _named(input_: inp.PlaceLooked, own: set[str]) -> dict[str, Obstruction]:
    """Unreadable paths to report from this scan."""
    if not input_.complete:
        room = BLOCKED_MAX - 1 - len(own)
        fresh = set(sorted(input_.blocked.keys() - own)[: max(0, room)])
        return {path: why for path, why in input_.blocked.items() if path in own or path in fresh}
    if len(input_.blocked) < BLOCKED_MAX:
        return input_.blocked
    first = sorted(path for path in input_.blocked if path != input_.place)[: BLOCKED_MAX - 1]
    more = Obstruction(
        f"more than {len(first)} paths in it cannot be read", "see to those that are named, and the others follow"
    )
    return {path: input_.blocked[path] for path in first} | {input_.place: more}


def _is_news(reason: str, why: Obstruction) -> bool:
    return why.reason != reason and (why.passing_s is None or why.passing_s >= PASSING_S)


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of examples, over the life of the journal."""

    pending: int
    """accepted and not learned yet, including the running step's"""
    held: int
    """waiting for a decision, or their step could not be run"""
    trained: int
    skipped: int = 0
    """their step wrote nothing"""
    undone: int = 0
    """their step was taken back"""
    withdrawn: int = 0
    """taken out of the queue"""
    declined: int = 0
    """decided against"""
    edited: int = 0
    """replaced by an edited version"""
    expired: int = 0
    """not decided in time"""
    forgetting: int = 0
    """learned, and being taken out of the weights"""
    unforgotten: int = 0
    """were to be forgotten, and could not be"""
    rejected: int
    """quarantined lines, and examples that cannot be learned"""
    duplicates: int
    """lines that repeat known ones"""
    accepted: int = 0


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A path of a source that cannot be read now."""

    reason: str
    hint: str
    """the fix"""
    mode: str
    """kind of place where it was found: `inbox`, `tail` (files of a watched directory) or `poll` (databases)"""
    since: float
    """Unix time at which it was found"""


def status(state: State) -> Queue:
    """Counts of examples by outcome, from all subjects that count some."""
    steps, forgetting = state.training.counts, state.forgetting
    now = forgetting.under_way
    return composed(
        Queue, steps, state.intake.counts, state.review.counts, pending=state.queued,
        held=len(state.review.held) + steps.held, undone=len(state.intake.undone),
        withdrawn=len(state.intake.withdrawn), forgetting=len(forgetting.wanted) + (len(now.wishes) if now else 0),
        unforgotten=len(forgetting.refused),
    )  # fmt: skip


def blocked(state: State) -> dict[str, Blocked]:
    """Unreadable places by path."""
    return {path: composed(Blocked, one, since=one.since_ns / SECOND_NS) for path, one in state.intake.blocked.items()}


HANDLERS: Handlers = {
    inp.LinesRead: _on_lines,
    inp.PlaceLooked: on_look,
    inp.ExampleWithdrawn: _on_withdraw,
    inp.RelearnRequested: _on_relearn,
    inp.EncodeDone: _on_encoded,
}
