"""Request for the status, built from the state."""

import os

import msgspec

from apollod.adapters import answer_store
from apollod.adapters.journal.journal_file import free_bytes
from apollod.adapters.system import clock
from apollod.adapters.system.hardware import processor_kind
from apollod.core.activities import reasons
from apollod.core.daemon.status import not_begun
from apollod.core.feedback import status as feedback
from apollod.core.feedback.status import Capture
from apollod.core.rollback import status as rollback
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.status_view import Seen, status_view
from apollod.wire import messages as msg
from apollod.wire.status import Growth, Journal, Status


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
    trainer = daemon.children.trainer
    seen = Seen(
        loaded=engine is not None and engine.loaded is not None,
        replaying=trainer.replaying if trainer else 0,
        read=daemon.bootstrapper.so_far,
        served=engine.api.served if engine else None,
    )
    return msgspec.structs.replace(
        status_view(state, clock.now_ns(), journal, trouble, seen),
        pid=os.getpid(),
        undo=rollback.undo(*((trainer.undoable, trainer.undo_bytes) if trainer else (None, None))),
        growth=_growth(daemon),
        capture=_capture(daemon),
        paths={"state": str(config.state_dir), "inbox": str(config.inbox_dir), "socket": str(config.socket_path)},
        processor=processor_kind(),
        activities=reasons(state),
    )


def _capture(daemon: Daemon) -> Capture:
    mode = daemon.config.capture.mode
    answers = 0 if mode == "off" else answer_store.count(daemon.config.capture_path)
    return feedback.status(daemon.loop.state, mode, answers)


def _growth(daemon: Daemon) -> Growth | None:
    found = daemon.growth.latest
    if found is None:
        return None
    return Growth(
        journal_bytes_per_day=found.journal_per_day,
        history_bytes_per_day=found.history_per_day,
        days_left=found.days_left,
    )
