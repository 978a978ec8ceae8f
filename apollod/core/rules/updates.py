"""Updates of the weights by outside trainers. Decisions, folds and status.

Law: one update at a time, and no own step begins while it is under way. Nothing is written before everything was
received and checked; then one fenced step writes all of it (`core.facts.updates`). So until that step has begun, an end
of any kind leaves the weights as they were, and afterwards recovery brings the old ones or the new ones.
"""

from collections.abc import Collection

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.intake.state import Waiting
from apollod.core.facts.updates import OBJECTIVE, SOURCE, Kept, Session, UpdatesState
from apollod.core.kernel.composing import composed, restore
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.intake.accepting import accepted, begin_encoding
from apollod.core.schedules import elapsed_s
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _opened(own: UpdatesState, state: State, e: ev.UpdateOpened, at_ns: int) -> None:
    own.last, own.session = e.update, Session(e, at_ns, at_ns)


def _received(own: UpdatesState, state: State, e: ev.UpdateReceived, at_ns: int) -> None:
    if own.session is not None:
        own.session.received.append(e)
        own.session.called_ns = at_ns


def _accepted(own: UpdatesState, state: State, e: ev.UpdateAccepted, at_ns: int) -> None:
    if own.session is not None:
        own.session.example, own.session.label = e.example, e.label
        own.session.called_ns = at_ns


def _started(own: UpdatesState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    if own.session is not None and e.example == own.session.example:
        own.session.parent = e.parent


def _completed(own: UpdatesState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    if own.session is None or e.example != own.session.example:
        return
    if e.applied:
        own.session.step, own.session.seconds = e.step, e.seconds
    else:
        own.session.failed = e.note


def _fail(own: UpdatesState, examples: Collection[str], reason: str) -> None:
    """Note why the update cannot be written, if its example is one of these."""
    if own.session is not None and own.session.example in examples:
        own.session.failed = reason


def _failed(
    own: UpdatesState, state: State, e: ev.StepFailed | ev.ExampleRejected | ev.ExampleHeld, at_ns: int
) -> None:
    _fail(own, (e.example,), e.reason)


def _declined(own: UpdatesState, state: State, e: ev.ExampleDeclined, at_ns: int) -> None:
    _fail(own, (e.example,), f"its example was declined by {e.by}")


def _edited(own: UpdatesState, state: State, e: ev.ExampleEdited, at_ns: int) -> None:
    _fail(own, (e.example,), f"its example was edited by {e.by}")


def _expired(own: UpdatesState, state: State, e: ev.ExampleExpired, at_ns: int) -> None:
    _fail(own, e.examples, "its example expired")


def _withdrawn(own: UpdatesState, state: State, e: ev.ExampleWithdrawn, at_ns: int) -> None:
    _fail(own, e.examples, e.reason or f"it was withdrawn by {e.by}")


def _committed(own: UpdatesState, state: State, e: ev.UpdateCommitted, at_ns: int) -> None:
    own.session, own.label, own.labelled, own.names = None, e.label, e.step, e.names
    own.committed += 1
    if e.durable != "payload":
        own.removing.append(composed(Kept, e))


def _undone(own: UpdatesState, state: State, e: ev.UpdateUndone, at_ns: int) -> None:
    own.session = None
    own.undone += 1


def _lost(own: UpdatesState, state: State, e: ev.UpdateLost, at_ns: int) -> None:
    own.unkept.pop(e.step, None)


def _files_removed(own: UpdatesState, state: State, e: ev.UpdateFilesRemoved, at_ns: int) -> None:
    for one in own.removing:
        if one.step == e.step:
            own.unkept[e.step] = one
    own.removing = [one for one in own.removing if one.step != e.step]


def _carried(own: UpdatesState, state: State, e: ev.UpdatesCarried, at_ns: int) -> None:
    restore(own, e)


FOLDS: Folds = {
    ev.UpdateOpened: _opened,
    ev.UpdateReceived: _received,
    ev.UpdateAccepted: _accepted,
    ev.StepStarted: _started,
    ev.StepCompleted: _completed,
    ev.StepFailed: _failed,
    ev.ExampleRejected: _failed,
    ev.ExampleHeld: _failed,
    ev.ExampleWithdrawn: _withdrawn,
    ev.ExampleDeclined: _declined,
    ev.ExampleEdited: _edited,
    ev.ExampleExpired: _expired,
    ev.UpdateCommitted: _committed,
    ev.UpdateUndone: _undone,
    ev.UpdateLost: _lost,
    ev.UpdateFilesRemoved: _files_removed,
    ev.UpdatesCarried: _carried,
}


# --- decisions -------------------------------------------------------------------------------------------------------


def advance(state: State, now_ns: int) -> Outcome:
    """End an update whose result is known, or that nobody asks about any more; else begin the step that writes it."""
    own, settings = state.updates, state.daemon.settings
    session = own.session
    if settings is None:
        return nothing()
    if session is None:
        return _remove_files(state)
    if session.step:
        return Outcome([_commit(state, session)], [])
    if session.failed:
        return _undo(state, session, session.failed)
    if _is_begun(state, session):
        return nothing()
    if state.daemon.stopping:
        return _undo(state, session, "the daemon stops")
    if session.example and state.daemon.halted:
        return _undo(state, session, f"training is halted: {state.daemon.halted}")
    if session.example and (written := _write(state, session)):
        return written
    silent_s = elapsed_s(session.called_ns, now_ns)
    if silent_s > settings.control.lease_s:
        why = "nothing could be written" if session.example else "nobody asked"
        return _undo(state, session, f"{why} for {settings.control.lease_s:g} s ([control] lease_s)")
    return nothing()


def _is_begun(state: State, session: Session) -> bool:
    """True from the beginning of the step that writes it on."""
    running = state.training.running
    return session.step > 0 or (running is not None and running.begun.example == session.example)


def _write(state: State, session: Session) -> Outcome:
    """Begin the step, once its example was checked by the trainer."""
    waiting = next((one for one in state.intake.direct.waiting if one.example == session.example), None)
    if waiting is None or not waiting.digest or blocked(Activity.UPDATE, state):
        return nothing()
    return step_of(state, waiting)


def step_of(state: State, waiting: Waiting) -> Outcome:
    """The step that writes an update, also one that was taken back and is wanted again."""
    started = ev.StepStarted(
        step=state.training.step + 1, parent=state.training.version, example=waiting.example, digest=waiting.digest,
        lr=0.0, window=state.training.windows, objective=OBJECTIVE,
    )  # fmt: skip
    return Outcome([started], [fx.RunStep.of(started)])


def _commit(state: State, session: Session) -> ev.UpdateCommitted:
    assert state.daemon.settings is not None
    return composed(
        ev.UpdateCommitted, session, update=session.number, fingerprint=state.training.fingerprint,
        tensors=session.tensors, bytes=session.bytes, names=session.names, files=session.files,
        durable=state.daemon.settings.control.durable,
    )  # fmt: skip


def _undo(state: State, session: Session, reason: str) -> Outcome:
    """End it without a change. Its example, if it has one that still waits, is withdrawn first."""
    if any(one.example == session.example for one in state.intake.direct.waiting):
        return Outcome([ev.ExampleWithdrawn(examples=(session.example,), by=BY, reason=one_line(reason))], [])
    undone = ev.UpdateUndone(session.number, one_line(reason), state.training.fingerprint)
    return Outcome([undone], [fx.DropUpdateFiles(session.files)] if session.files else [])


BY = "apollod"
"""who takes the example of an update that ends out of the queue"""


def _remove_files(state: State) -> Outcome:
    """Remove files that are not to be kept: at once, or when a recovery no longer needs them."""
    needed = {done.step for done in state.recovery.since}
    due = next((one for one in state.updates.removing if one.durable == "none" or one.step not in needed), None)
    return nothing() if due is None else Outcome([], [fx.RemoveUpdateFiles(due.step, due.files)])


def _on_opening(state: State, input_: inp.UpdateOpening, now_ns: int) -> Outcome:
    if state.updates.session is not None or blocked(Activity.LEASE, state):
        return nothing()
    opened = composed(
        ev.UpdateOpened, input_, update=state.updates.last + 1, weights=state.training.version,
        fingerprint=state.training.fingerprint,
    )  # fmt: skip
    return Outcome([opened], [])


def _open(state: State, update: int) -> Session | None:
    """The update with this number, if it is still received."""
    session = state.updates.session
    return session if session is not None and session.number == update and session.receiving else None


def _on_received(state: State, input_: ev.UpdateReceived, now_ns: int) -> Outcome:
    if _open(state, input_.update) is None:
        return Outcome([], [fx.DropUpdateFiles((input_.file,))])
    return Outcome([input_], [])


def _on_committing(state: State, input_: inp.UpdateCommitting, now_ns: int) -> Outcome:
    """Accept the update as an example, which the trainer checks before the step."""
    session = _open(state, input_.update)
    if session is None or not session.received:
        return nothing()
    source = SOURCE + session.opened.dialect
    taken = accepted(input_.line, source, "update", session.number, responses=(), signature="")
    wanted = ev.UpdateAccepted(session.number, taken.example, input_.label)
    return Outcome([taken, wanted], begin_encoding(state, [(taken.example, "update")]))


def _on_ending(state: State, input_: inp.UpdateEnding, now_ns: int) -> Outcome:
    """End it, unless its step has begun: that one is finished or run again."""
    session = state.updates.session
    if session is None or session.number != input_.update or session.failed or _is_begun(state, session):
        return nothing()
    return _undo(state, session, input_.reason)


def _on_engine_exited(state: State, input_: inp.EngineExited, now_ns: int) -> Outcome:
    """End an update that is still received: its requests went to the engine that is gone."""
    session = state.updates.session
    if session is None or session.example:
        return nothing()
    return _undo(state, session, "the engine ended, and with it the requests of the update")


def _on_started(state: State, input_: inp.Started, now_ns: int) -> Outcome:
    """End an update that a daemon before this one left, unless its step has begun: that one is run again."""
    session = state.updates.session
    if session is None or session.failed or _is_begun(state, session):
        return nothing()
    return _undo(state, session, "the daemon ended before it was written")


def _on_files_gone(state: State, input_: inp.UpdateFilesGone, now_ns: int) -> Outcome:
    one = next((one for one in state.updates.removing if one.step == input_.step), None)
    return nothing() if one is None else Outcome([ev.UpdateFilesRemoved(one.update, one.step, one.files)], [])


HANDLERS: Handlers = {
    inp.Started: _on_started,
    inp.EngineExited: _on_engine_exited,
    inp.UpdateOpening: _on_opening,
    inp.UpdateReceived: _on_received,
    inp.UpdateCommitting: _on_committing,
    inp.UpdateEnding: _on_ending,
    inp.UpdateFilesGone: _on_files_gone,
}


# --- status ----------------------------------------------------------------------------------------------------------


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The outside trainer that updates the weights now."""

    update: int
    dialect: str
    """vllm or sglang"""
    by: str
    since_s: float
    silent_s: float
    """seconds since its last call"""
    state: str
    """receiving or writing"""
    tensors: int
    bytes: int


class Updates(msgspec.Struct, frozen=True, kw_only=True):
    """Updates of the weights by outside trainers."""

    lease: Lease | None = None
    committed: int = 0
    undone: int = 0
    """ended without a change"""
    label: str = ""
    """the outside trainer's name of the last committed version"""


def status(state: State, now_ns: int) -> Updates:
    """The lease, and totals."""
    own = state.updates
    return composed(Updates, own, lease=_lease(own.session, now_ns) if own.session else None)


def _lease(one: Session, now_ns: int) -> Lease:
    return Lease(
        update=one.number, dialect=one.opened.dialect, by=one.opened.by, since_s=elapsed_s(one.since_ns, now_ns),
        silent_s=elapsed_s(one.called_ns, now_ns), state="writing" if one.example else "receiving",
        tensors=one.tensors, bytes=one.bytes,
    )  # fmt: skip
