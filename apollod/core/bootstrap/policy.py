"""Begins and ends bootstraps.

Law: nothing is read here. The source is read beside the loop, as any other, while the state requires it: after a crash
as before. A bootstrap is complete when none of its examples waits.
"""

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.bootstrap.state import Bootstrapping
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State

UNREAD_MAX = 64
"""most paths in one event"""


def _under_way(state: State) -> Bootstrapping | None:
    current = state.bootstrap.current
    return current if current is not None and current.under_way else None


def _on_wanted(state: State, input_: inp.BootstrapWanted, now_ns: int) -> Outcome:
    """Start, unless a bootstrap is under way: one at a time."""
    return nothing() if _under_way(state) is not None else Outcome([input_.request], [])


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


HANDLERS: Handlers = {inp.BootstrapWanted: _on_wanted, inp.BootstrapRan: _on_ran, inp.BootstrapStopWanted: _on_stop}
