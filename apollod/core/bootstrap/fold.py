"""Folds the events of bootstraps into the state."""

from collections.abc import Sequence

import msgspec

from apollod.core.bootstrap.events import (
    BootstrapCarried,
    BootstrapCompleted,
    BootstrapRead,
    BootstrapRequested,
    BootstrapStopped,
)
from apollod.core.bootstrap.state import EARLIER_MAX, Bootstrapping, BootstrapState
from apollod.core.intake.events import ExampleAccepted, ExampleRejected, ExampleWithdrawn, SourceConsumed
from apollod.core.intake.state import Position
from apollod.core.kernel.folding import Folds
from apollod.core.review.events import ExampleDeclined, ExampleEdited, ExampleExpired, ExampleHeld
from apollod.core.state import State
from apollod.core.training.events import StepCompleted, StepFailed, all_examples


def _requested(own: BootstrapState, state: State, e: BootstrapRequested, at_ns: int) -> None:
    """Take over the counts if the same request was made before."""
    if own.current is not None:
        own.earlier[own.current.key] = own.current
    own.current = now = Bootstrapping(e, at_ns)
    if (before := own.earlier.pop(now.key, None)) is not None:
        now.counts, now.waiting = before.counts, before.waiting
        now.completed = before.counts.learned if before.phase == "completed" else before.completed
    if len(own.earlier) > EARLIER_MAX:
        del own.earlier[next(iter(own.earlier))]


def _accepted(own: BootstrapState, state: State, e: ExampleAccepted, at_ns: int) -> None:
    if (current := _reader_of(own, e.source)) is not None:
        current.waiting[e.example] = None


def _consumed(own: BootstrapState, state: State, e: SourceConsumed, at_ns: int) -> None:
    if (current := _reader_of(own, e.source)) is not None:
        _count(current, accepted=e.accepted, duplicates=e.duplicates, rejected=e.rejected, dropped=e.unlearned)


def _reader_of(own: BootstrapState, source: str) -> Bootstrapping | None:
    """The bootstrap that reads this source."""
    current = own.current
    if current is None or current.phase != "reading" or "@" not in source:
        return None
    return current if Position(source, 0, 0).file.endswith(current.request.mark) else None


def _step_completed(own: BootstrapState, state: State, e: StepCompleted, at_ns: int) -> None:
    _settle(own, all_examples(e), "learned" if e.applied else "")


def _step_failed(own: BootstrapState, state: State, e: StepFailed, at_ns: int) -> None:
    """Count the example of a failed step as held; several examples are tried one by one."""
    if not e.apart:
        _settle(own, [one.example for one in state.intake.taken], "held")


def _held(own: BootstrapState, state: State, e: ExampleHeld, at_ns: int) -> None:
    """Count a held example, unless it waits for the judge, which may still accept it."""
    if e.waits_for != "judge":
        _settle(own, (e.example,), "held")


def _given_up(
    own: BootstrapState, state: State, e: ExampleRejected | ExampleDeclined | ExampleEdited, at_ns: int
) -> None:
    _settle(own, (e.example,))


def _withdrawn(own: BootstrapState, state: State, e: ExampleWithdrawn | ExampleExpired, at_ns: int) -> None:
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


def _read(own: BootstrapState, state: State, e: BootstrapRead, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase, own.current.files, own.current.bytes = "learning", e.files, e.bytes
        own.current.unread = e.unread_files


def _completed(own: BootstrapState, state: State, e: BootstrapCompleted, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase, own.current.counts = "completed", e.counts


def _stopped(own: BootstrapState, state: State, e: BootstrapStopped, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase, own.current.reason, own.current.counts = "stopped", e.reason, e.counts


def _carried(own: BootstrapState, state: State, e: BootstrapCarried, at_ns: int) -> None:
    if (one := own.current) is not None:
        one.phase, one.reason, one.counts, one.completed = e.phase, e.reason, e.counts, e.completed
        one.files, one.bytes, one.unread = e.files, e.bytes, e.unread
        one.waiting |= dict.fromkeys(e.waiting)


FOLDS: Folds = {
    BootstrapRequested: _requested,
    BootstrapRead: _read,
    BootstrapCompleted: _completed,
    BootstrapStopped: _stopped,
    BootstrapCarried: _carried,
    ExampleAccepted: _accepted,
    SourceConsumed: _consumed,
    StepCompleted: _step_completed,
    StepFailed: _step_failed,
    ExampleHeld: _held,
    ExampleRejected: _given_up,
    ExampleDeclined: _given_up,
    ExampleEdited: _given_up,
    ExampleWithdrawn: _withdrawn,
    ExampleExpired: _withdrawn,
}
"""Folded before `intake`, which clears the examples of a failed step."""
