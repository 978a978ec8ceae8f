"""Requests answered from the state: the status, and the examples learned next, with the reasons."""

import os
from collections import Counter
from itertools import islice
from typing import Any

import msgspec

from apollod.adapters import answer_store
from apollod.adapters.journal.journal_file import free_bytes
from apollod.adapters.system import clock
from apollod.adapters.system.hardware import processor_kind
from apollod.core.activities import Activity, blocked, reasons
from apollod.core.facts.intake.state import IntakeState, Pick, upcoming
from apollod.core.rules import feedback, rollback
from apollod.core.rules.daemon import not_begun
from apollod.core.rules.feedback import Capture
from apollod.core.settings import QueueSettings
from apollod.core.state import State
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.status_view import Seen, status_view
from apollod.wire import messages as msg
from apollod.wire.status import Growth, Journal, Status

MOST = 1000
"""most examples of one answer"""
NAMED = 10
"""most groups of one kind in an answer, those with the most examples"""


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
    if (found := daemon.growth.latest) is None:
        return None
    journal, history, days_left = found
    return Growth(journal_bytes_per_day=journal, history_bytes_per_day=history, days_left=days_left)


async def queue(daemon: Daemon, request: msg.QueueRequest) -> msg.Answer:
    """List the queue, from the state."""
    return msg.Reply(queue_of(daemon.loop.state, request.limit))


def queue_of(state: State, limit: int) -> dict[str, Any]:
    """The next `limit` examples, at most MOST, and the facts that decide their order."""
    intake, settings = state.intake, state.daemon.settings
    rules = settings.queue if settings is not None else QueueSettings()
    picks = list(islice(upcoming(intake, rules.share_max), min(limit, MOST)))
    running, window = state.training.running, state.training.window
    return {
        "schema_version": 1,
        "waiting": {"direct": len(intake.direct.waiting), "bulk": len(intake.bulk.waiting)},
        "not_tokenised": len(intake.direct.untokenised) + len(intake.bulk.untokenised),
        "held": len(state.review.held),
        "running": {"step": running.step, "examples": list(running.examples)} if running else None,
        "blocked": _blocked(state, picks),
        "window": {"number": window.number, "planned": window.planned, "examples": window.examples} if window else None,
        "share_max": rules.share_max,
        "expire_days": rules.expire_days,
        "taken": _taken(intake),
        "next": [_told(number, pick) for number, pick in enumerate(picks, 1)],
    }


def _blocked(state: State, picks: list[Pick]) -> str:
    """Reason why the next step does not begin; empty: it is about to, or nothing waits."""
    if not picks:
        return ""
    return blocked(Activity.STEP, state) or ("" if picks[0].waiting.digest else "the next example is being tokenised")


def _taken(intake: IntakeState) -> dict[str, Any]:
    """Counts of the window's recent examples by source, session and topic, over the span of shares."""
    kinds = ("source", "session", "topic")
    counts = {kind: Counter(name for kin in intake.recent if (name := getattr(kin, kind))) for kind in kinds}
    most = {kind: [{"name": n, "examples": c} for n, c in counts[kind].most_common(NAMED)] for kind in kinds}
    return {"examples": len(intake.recent), **most}


def _told(number: int, pick: Pick) -> dict[str, Any]:
    one = pick.waiting
    return {
        "number": number, "example": one.example, "tier": one.tier, "tokens": one.tokens if one.digest else None,
        "source": one.kin.source, "session": one.kin.session, "topic": one.kin.topic, "waiting_since_ns": one.since_ns,
        "before": pick.place, "why": _why(pick),
    }  # fmt: skip


def _why(pick: Pick) -> str:
    """The reason why it is next, in plain words."""
    if pick.waiting.tier == "direct":
        return "given directly"
    if pick.waiting.holds_one:
        return "a step that was to learn it and held several anchors failed"
    if pick.waiting.alone:
        return "a step that was to learn it with others failed"
    said = " and ".join(kind for kind, _ in pick.over)
    if pick.all_over:
        return f"all within reach have had their share; of its own least was taken ({said})" if pick.place else _ALL
    if pick.over:
        return f"before {pick.place} whose {said} has had its share"
    return "the order in which they came" if pick.waiting.digest else "the order in which they came; not tokenised yet"


_ALL = "its share is used up, but nothing else waits within reach"
