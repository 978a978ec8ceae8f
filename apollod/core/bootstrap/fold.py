"""How facts change the bootstrap that is under way."""

from collections.abc import Iterable

import msgspec

from apollod.core.bootstrap.events import BootstrapCompleted, BootstrapRead, BootstrapRequested, BootstrapStopped
from apollod.core.bootstrap.state import Bootstrapping, BootstrapState
from apollod.core.intake.events import ExampleAccepted, ExampleRejected, ExampleWithdrawn, SourceConsumed
from apollod.core.intake.state import Position
from apollod.core.kernel.folding import Folds
from apollod.core.review.events import ExampleDeclined, ExampleEdited, ExampleExpired, ExampleHeld
from apollod.core.state import State
from apollod.core.training.events import StepCompleted, StepFailed, all_examples

DROPPED = "dropped: "


def _requested(own: BootstrapState, state: State, e: BootstrapRequested, at_ns: int) -> None:
    own.current = Bootstrapping(e, at_ns)


def _accepted(own: BootstrapState, state: State, e: ExampleAccepted, at_ns: int) -> None:
    if (current := _reader_of(own, e.source)) is not None:
        current.waiting[e.example] = None


def _consumed(own: BootstrapState, state: State, e: SourceConsumed, at_ns: int) -> None:
    if (current := _reader_of(own, e.source)) is None:
        return
    dropped = sum(count for what, count in e.counts.items() if what.startswith(DROPPED))
    _count(current, accepted=e.accepted, duplicates=e.duplicates, rejected=e.rejected, dropped=dropped)


def _reader_of(own: BootstrapState, source: str) -> Bootstrapping | None:
    """The bootstrap that reads this source."""
    current = own.current
    if current is None or current.phase != "reading" or "@" not in source:
        return None
    return current if Position(source, 0, 0).file.endswith(current.request.mark) else None


def _step_completed(own: BootstrapState, state: State, e: StepCompleted, at_ns: int) -> None:
    if own.current is not None and own.current.waiting:
        done = _settle(own, all_examples(e))
        _count(own.current, learned=done if e.applied else 0)


def _step_failed(own: BootstrapState, state: State, e: StepFailed, at_ns: int) -> None:
    """The example of a step that could not be run waits for a person; several are tried one by one."""
    if not e.apart and own.current is not None:
        _count(own.current, held=_settle(own, (one.example for one in state.intake.taken)))


def _held(own: BootstrapState, state: State, e: ExampleHeld, at_ns: int) -> None:
    if own.current is not None:
        _count(own.current, held=_settle(own, (e.example,)))


def _given_up(
    own: BootstrapState, state: State, e: ExampleRejected | ExampleDeclined | ExampleEdited, at_ns: int
) -> None:
    _settle(own, (e.example,))


def _withdrawn(own: BootstrapState, state: State, e: ExampleWithdrawn | ExampleExpired, at_ns: int) -> None:
    _settle(own, e.examples)


def _settle(own: BootstrapState, examples: Iterable[str]) -> int:
    """These do not wait any more; how many of them did."""
    waiting = own.current.waiting if own.current is not None else {}
    return sum(waiting.pop(example, 0) is None for example in examples)


def _count(current: Bootstrapping, **more: int) -> None:
    now = {name: getattr(current.counts, name) + count for name, count in more.items()}
    current.counts = msgspec.structs.replace(current.counts, **now)


def _read(own: BootstrapState, state: State, e: BootstrapRead, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase, own.current.files, own.current.bytes = "learning", e.files, e.bytes
        own.current.unread = e.unread_files


def _completed(own: BootstrapState, state: State, e: BootstrapCompleted, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase = "completed"


def _stopped(own: BootstrapState, state: State, e: BootstrapStopped, at_ns: int) -> None:
    if own.current is not None:
        own.current.phase, own.current.reason, own.current.waiting = "stopped", e.reason, {}


FOLDS: Folds = {
    BootstrapRequested: _requested,
    BootstrapRead: _read,
    BootstrapCompleted: _completed,
    BootstrapStopped: _stopped,
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
"""Before `intake`, which forgets what a failed step was to learn."""
