"""Bootstraps: existing logs of agents, read once and learned without their instructions. Decisions, folds and status.

Law: nothing is read here. The source is read beside the loop, as any other, while the state requires it: after a crash
as before. A bootstrap is complete when none of its examples waits.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.bootstrap import EARLIER_MAX, Bootstrapping, BootstrapState
from apollod.core.facts.intake.state import Position, Waiting
from apollod.core.facts.training import Pace, expected_s
from apollod.core.kernel.composing import composed, restore
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _requested(own: BootstrapState, state: State, e: ev.BootstrapRequested, at_ns: int) -> None:
    """Take over the counts if the same request was made before."""
    if own.current is not None:
        own.earlier[own.current.key] = own.current
    own.current = now = Bootstrapping(e, at_ns)
    if (before := own.earlier.pop(now.key, None)) is not None:
        now.counts, now.waiting = before.counts, before.waiting
        now.completed = before.counts.learned if before.phase == "completed" else before.completed
    if len(own.earlier) > EARLIER_MAX:
        del own.earlier[next(iter(own.earlier))]


def _accepted(own: BootstrapState, state: State, e: ev.ExampleAccepted, at_ns: int) -> None:
    if (current := _reader_of(own, e.source)) is not None:
        current.waiting[e.example] = None


def _consumed(own: BootstrapState, state: State, e: ev.SourceConsumed, at_ns: int) -> None:
    if (current := _reader_of(own, e.source)) is not None:
        _count(current, accepted=e.accepted, duplicates=e.duplicates, rejected=e.rejected, dropped=e.unlearned)


def _reader_of(own: BootstrapState, source: str) -> Bootstrapping | None:
    """The bootstrap that reads this source."""
    current = own.current
    if current is None or current.phase != "reading" or "@" not in source:
        return None
    return current if Position(source, 0, 0).file.endswith(current.request.mark) else None


def _step_completed(own: BootstrapState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    _settle(own, ev.all_examples(e), "learned" if e.applied else "")


def _step_failed(own: BootstrapState, state: State, e: ev.StepFailed, at_ns: int) -> None:
    """Count the example of a failed step as held; several examples are tried one by one."""
    if not e.apart:
        _settle(own, [one.example for one in state.intake.taken], "held")


def _held(own: BootstrapState, state: State, e: ev.ExampleHeld, at_ns: int) -> None:
    """Count a held example, unless it waits for the judge, which may still accept it."""
    if e.waits_for != "judge":
        _settle(own, (e.example,), "held")


def _given_up(
    own: BootstrapState, state: State, e: ev.ExampleRejected | ev.ExampleDeclined | ev.ExampleEdited, at_ns: int
) -> None:
    _settle(own, (e.example,))


def _withdrawn(own: BootstrapState, state: State, e: ev.ExampleWithdrawn | ev.ExampleExpired, at_ns: int) -> None:
    _settle(own, e.examples)


def _settle(own: BootstrapState, examples: Sequence[str], count: str = "") -> None:
    """Remove examples from the waiting ones and add them to `count`."""
    for one in own.known:
        if one.waiting:
            done = sum(one.waiting.pop(example, 0) is None for example in examples)
            if done and count:
                _count(one, **{count: done})


def _count(current: Bootstrapping, **more: int) -> None:
    now = {name: getattr(current.counts, name) + count for name, count in more.items()}
    current.counts = msgspec.structs.replace(current.counts, **now)


def _read(own: BootstrapState, state: State, e: ev.BootstrapRead, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase, own.current.files, own.current.bytes = "learning", e.files, e.bytes
        own.current.unread = e.unread_files


def _completed(own: BootstrapState, state: State, e: ev.BootstrapCompleted, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase, own.current.counts = "completed", e.counts


def _stopped(own: BootstrapState, state: State, e: ev.BootstrapStopped, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase, own.current.reason, own.current.counts = "stopped", e.reason, e.counts


def _carried(own: BootstrapState, state: State, e: ev.BootstrapCarried, at_ns: int) -> None:
    if (one := own.current) is not None:
        restore(one, e, but=("waiting",))
        one.waiting |= dict.fromkeys(e.waiting)


FOLDS: Folds = {
    ev.BootstrapRequested: _requested,
    ev.BootstrapRead: _read,
    ev.BootstrapCompleted: _completed,
    ev.BootstrapStopped: _stopped,
    ev.BootstrapCarried: _carried,
    ev.ExampleAccepted: _accepted,
    ev.SourceConsumed: _consumed,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.ExampleHeld: _held,
    ev.ExampleRejected: _given_up,
    ev.ExampleDeclined: _given_up,
    ev.ExampleEdited: _given_up,
    ev.ExampleWithdrawn: _withdrawn,
    ev.ExampleExpired: _withdrawn,
}
"""Folded before `intake`, which clears the examples of a failed step."""


# --- decisions -------------------------------------------------------------------------------------------------------

UNREAD_MAX = 64
"""most paths in one event"""


def _under_way(state: State) -> Bootstrapping | None:
    current = state.bootstrap.current
    return current if current is not None and current.under_way else None


def _on_wanted(state: State, input_: inp.BootstrapRequested, now_ns: int) -> Outcome:
    """Start, unless a bootstrap is under way: one at a time."""
    return nothing() if _under_way(state) is not None else Outcome([input_], [])


def _on_ran(state: State, input_: inp.BootstrapRan, now_ns: int) -> Outcome:
    """Record that the source was read, or that it cannot be."""
    current = _under_way(state)
    if current is None or current.phase != "reading" or current.request != input_.request:
        return nothing()  # it was stopped meanwhile
    path, counts = current.request.path, current.counts
    if input_.refused:
        return Outcome([ev.BootstrapStopped(path=path, counts=counts, reason=input_.refused)], [])
    read = ev.BootstrapRead(
        path=path, files=input_.files, bytes=input_.bytes, counts=counts, unread=input_.unread[:UNREAD_MAX],
        unread_files=len(input_.unread),
    )  # fmt: skip
    return Outcome([read], [])


def _on_stop(state: State, input_: inp.BootstrapStopWanted, now_ns: int) -> Outcome:
    current = _under_way(state)
    if current is None:
        return nothing()
    stopped = ev.BootstrapStopped(
        path=current.request.path, counts=current.counts, reason=f"stopped by {input_.by}"
    )  # fmt: skip
    return Outcome([stopped], [])


def advance(state: State, now_ns: int) -> Outcome:
    """Complete the bootstrap when all is read and no example of it waits."""
    current = _under_way(state)
    if current is None or current.phase != "learning" or current.waiting:
        return nothing()
    seconds = round(max(0, now_ns - current.since_ns) / SECOND_NS, 3)
    return Outcome(
        [ev.BootstrapCompleted(path=current.request.path, counts=current.counts, seconds=seconds)], []
    )  # fmt: skip


HANDLERS: Handlers = {inp.BootstrapRequested: _on_wanted, inp.BootstrapRan: _on_ran, inp.BootstrapStopWanted: _on_stop}


# --- status ----------------------------------------------------------------------------------------------------------

LOOKED_AT = 64
"""number of queued examples whose lengths are averaged"""


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """Existing logs that are read and learned once: the source under way, or the last one."""

    path: str
    state: str
    """`reading`; `learning`: all is read, and its examples wait for their steps; `completed`; `stopped`"""
    reason: str = ""
    """why it was stopped"""
    strip: str
    files: int | None = None
    """number of files; null: not counted yet"""
    files_read: int = 0
    bytes: int | None = None
    """total size on disk"""
    bytes_read: int = 0
    unread: int = 0
    """files that could not be read"""
    accepted: int = 0
    """examples, as in all following fields except `rejected`; over all requests for the same place and rules"""
    duplicates: int = 0
    rejected: int = 0
    """lines that are not records"""
    dropped: int = 0
    """answers without an example"""
    learned: int = 0
    held: int = 0
    waiting: int = 0
    """accepted and neither learned nor given up, including those that wait for the judge"""
    left: int | None = None
    """`waiting`, and the expected examples of the rest of the source; null: not known"""
    pattern: str = ""
    """the pattern that it teaches"""
    pattern_state: str = ""
    """`active`, `settled` or `retired`"""
    pattern_tests: dict[str, list[int]] | None = None
    """last round of tests of the pattern, by mode: [passed, count]; null: not tested since the bootstrap"""
    left_s: float | None = None
    """expected seconds of steps for `left`; null: not known"""


class ReadSoFar(NamedTuple):
    """Progress of reading: files, and bytes on disk."""

    files: int = 0
    of_files: int = 0
    bytes: int = 0
    of_bytes: int = 0


def status(state: State, read: ReadSoFar | None) -> Bootstrap | None:
    """The bootstrap under way, or the last one. `read`: progress of reading; None: nothing is being read."""
    current, recent = state.bootstrap.current, state.training.recent
    if current is None:
        return None
    if current.phase == "reading":
        share = read.bytes / read.of_bytes if read is not None and read.of_bytes else None
        files, bytes_ = (read.of_files, read.of_bytes) if read is not None else (None, None)
    else:
        share, files, bytes_ = 1.0, current.files, current.bytes
        read = ReadSoFar(files, files, bytes_, bytes_)
    tokens, waiting = typical_tokens(recent, state.intake.bulk.waiting), len(current.waiting)
    seconds = left_s(recent, tokens, waiting, current.counts.accepted, share) if current.under_way else None
    come = to_come(current.counts.accepted, share) if current.phase != "stopped" else None
    course = state.dreams.courses.get(current.request.pattern)
    tested = course is not None and bool(course.bootstraps) and not course.due
    return composed(
        Bootstrap, current.request, current, current.counts, state=current.phase, files=files, bytes=bytes_,
        files_read=read.files if read else 0, bytes_read=read.bytes if read else 0, waiting=waiting,
        left=None if come is None else waiting + come, pattern_state=course.phase if course is not None else "",
        pattern_tests={mode: [*rate] for mode, rate in course.final.items()} if course is not None and tested else None,
        left_s=None if seconds is None else round(seconds, 3),
    )  # fmt: skip


def typical_tokens(recent: Sequence[Pace], queue: Iterable[Waiting]) -> int:
    """Mean tokens of an example: of waiting ones or, if none is tokenised, of the last steps; 0: not known."""
    lengths = [one.tokens for one in islice(queue, LOOKED_AT) if one.tokens] or [pace.tokens for pace in recent]
    return round(sum(lengths) / len(lengths)) if lengths else 0


def to_come(accepted: int, share: float | None) -> int | None:
    """Expected examples from the rest of a source, in proportion to the `share` that was read (None: not known). None
    if it cannot be estimated."""
    if share is None or (not share and not accepted):
        return None
    return round(accepted * (1 / share - 1)) if share else None


def left_s(recent: Sequence[Pace], tokens: int, waiting: int, accepted: int, share: float | None) -> float | None:
    """Seconds of steps for waiting examples and those expected from the rest of the source, in proportion to the
    `share` that was read (None: not known). None if it cannot be estimated, or no step was timed yet."""
    each = expected_s(recent, tokens)
    if each is None or share is None or (not share and not waiting):
        return None
    to_come = accepted * (1 / share - 1) if share else 0.0
    return each * (waiting + to_come)
