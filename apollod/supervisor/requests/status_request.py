"""Request for the status, built from the state."""

import os

import msgspec

from apollod.adapters import answer_store
from apollod.adapters.journal.journal_file import free_bytes
from apollod.adapters.system import clock
from apollod.adapters.system.hardware import processor_kind
from apollod.core.activities import reasons
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.status_view import Progress, not_begun, status_view
from apollod.wire import messages as msg
from apollod.wire.status import Status
from apollod.wire.status_sections.journal_status import Growth, Journal
from apollod.wire.status_sections.judging_status import Capture
from apollod.wire.status_sections.weights_status import Undo


async def status(daemon: Daemon, request: msg.StatusRequest) -> msg.Answer:
    """The status; works even if the journal fails."""
    return msg.Reply(status_of(daemon))


def status_of(daemon: Daemon) -> Status:
    """The status object."""
    config, engine = daemon.config, daemon.children.engine
    seq, head = daemon.journal.head
    path = config.journal_path
    journal = Journal(
        seq=seq,
        bytes=daemon.journal.size_bytes(),
        head_hash=head,
        path=str(path),
        verified=daemon.audit.verified,
        free_bytes=free_bytes(path),
    )
    state = daemon.loop.state if daemon.loop.begun else not_begun(daemon.loop.state)
    trouble = daemon.loop.journal_error or daemon.audit.damage
    paths = {"state": str(config.state_dir), "inbox": str(config.inbox_dir), "socket": str(config.socket_path)}
    served = engine.api.served if engine else None
    trainer = daemon.children.trainer
    loaded, replaying = engine is not None and engine.loaded is not None, trainer.replaying if trainer else 0
    progress = Progress(loaded, replaying, daemon.bootstrapper.so_far)
    view = status_view(
        state,
        clock.now_ns(),
        journal,
        trouble,
        os.getpid(),
        paths,
        served,
        reasons(state),
        progress,
        _growth(daemon),
        _undo(daemon),
    )
    return msgspec.structs.replace(view, capture=_capture(daemon), processor=processor_kind())


def _capture(daemon: Daemon) -> Capture:
    mode = daemon.config.capture.mode
    answers = 0 if mode == "off" else answer_store.count(daemon.config.capture_path)
    return Capture(mode=mode, answers=answers, rated=daemon.loop.state.feedback.rated)


def _growth(daemon: Daemon) -> Growth | None:
    found = daemon.growth.latest
    if found is None:
        return None
    return Growth(
        journal_bytes_per_day=found.journal_per_day,
        history_bytes_per_day=found.history_per_day,
        days_left=found.days_left,
    )


def _undo(daemon: Daemon) -> Undo:
    """The trainer's last report; none before it was attached."""
    trainer = daemon.children.trainer
    told, given = (trainer.undoable, trainer.undo_bytes) if trainer else (None, None)
    return Undo(steps=None) if told is None else Undo(steps=told.steps, reason=told.reason, bytes=given)
