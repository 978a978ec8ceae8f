"""What `status` shows: the state in the words of DESIGN section 9. Fields are only ever added."""

from typing import Any

import msgspec

from apollod.core.state import SECOND_NS, Child, State

SCHEMA_VERSION = 1


def status_view(
    state: State, now_ns: int, journal: dict[str, Any], journal_error: str = "", pid: int = 0, paths: dict[str, str] | None = None
) -> dict[str, Any]:
    """The status object. `journal`: seq, bytes, head_hash."""
    facts, checkpoint = state.engine_facts, state.checkpoint
    settings = state.settings
    return {
        "schema_version": SCHEMA_VERSION,
        "state": _phase(state, journal_error),
        "error": journal_error or state.halted or state.engine.error or (state.trainer.error if state.trainer.phase != "ready" else ""),
        "pid": pid,
        "step": state.version,
        "engine": _child(state.engine) | {
            "url": facts.url if facts else "", "model": facts.model if facts else "", "path": state.engine_dir,
        },
        "trainer": _child(state.trainer),
        "weights": {
            "bridge": facts.bridge if facts else "",
            "parameters": facts.parameters if facts else 0,
            "live": facts.live if facts else 0,
            "cast": facts.cast if facts else 0,
            "rederive": facts.rederive if facts else 0,
            "frozen": facts.frozen if facts else 0,
            "trained": state.bound.parameters if state.bound else 0,
            "bytes": facts.bytes if facts else 0,
            "elements": state.bound.elements if state.bound else 0,
            "fingerprint": state.fingerprint,
            "base_fingerprint": state.base_fingerprint,
            "version": state.version,
            "publish": settings.publish if settings else "", "cache": settings.cache if settings else "",
            "paused": state.engine_paused,
            "alignment": _alignment(state),
        },
        "queue": {
            "pending": state.queued, "held": state.counts.held, "trained": state.counts.trained,
            "skipped": state.counts.skipped, "undone": len(state.undone),
            "rejected": state.counts.rejected, "duplicates": state.counts.duplicates, "accepted": state.counts.accepted,
        },
        "optimizer": {
            "name": settings.optimizer if settings else "", "rank": settings.rank if settings else 0,
            "lr": settings.lr if settings else 0.0, "lr_direct": settings.lr_direct if settings else 0.0, "state_bytes": state.state_bytes,
        },
        "checkpoint": {
            "step": checkpoint.step if checkpoint else None,
            "at": checkpoint.at_ns / SECOND_NS if checkpoint else None,
            "fingerprint": checkpoint.fingerprint if checkpoint else None,
            "path": checkpoint.path if checkpoint else None,
            "steps_since": len(state.since), "kept": len(state.checkpoints), "bytes": sum(c.bytes for c in state.checkpoints),
        },
        "rollback": _rollback(state),
        "base": {
            "kept": state.base is not None, "path": state.base.path if state.base else None, "how": state.base.how if state.base else None,
            "reason": _no_base(state),
        },
        "journal": journal,
        "quality": {},
        "paths": paths or {},
        "uptime_s": round(max(0, now_ns - state.started_at_ns) / SECOND_NS, 3) if state.started_at_ns else 0.0,
    }


def _rollback(state: State) -> dict[str, Any] | None:
    """The one that is wanted or under way."""
    wanted, back = state.rollback_wanted, state.rolling_back
    if back is not None:
        return {"to": back.to, "from": back.from_step, "state": "started"}
    return {"to": wanted.to, "from": state.version, "state": "requested"} if wanted is not None else None


def _alignment(state: State) -> dict[str, Any] | None:
    """The newest comparison of trainer and engine."""
    a = state.alignment
    if a is None:
        return None
    return {
        "step": a.step, "aligned": a.aligned, "mean_abs_diff": a.mean_abs_diff, "max_abs_diff": a.max_abs_diff, "tokens": a.tokens,
        "bound": a.bound, "seconds": a.seconds,
    }


def not_begun(state: State) -> State:
    """The state as it is to be shown before this life's first event is recorded: children and halts were the last life's."""
    return msgspec.structs.replace(
        state, engine=Child(), trainer=Child(), engine_facts=None, bound=None, stopping=False, stopped=False, halted="", running=None
    )


def _no_base(state: State) -> str:
    """Why there is no way back to the untrained weights but the model directory itself, if so."""
    if state.base is not None:
        return ""
    off = state.settings is not None and state.settings.keep_base == "off"
    return state.base_lost or ('[checkpoint] keep_base = "off"' if off else "not kept yet")


def _child(child: Child) -> dict[str, Any]:
    return {
        "pid": child.pid or None, "ready": child.phase == "ready", "restarts": max(0, child.spawns - 1),
        "given_up": child.given_up, "error": child.error,
    }


def _phase(state: State, journal_error: str) -> str:
    """starting | serving | training | paused | degraded | stopping."""
    if state.stopping or state.stopped:
        return "stopping"
    if journal_error or state.halted or state.engine.given_up or state.trainer.given_up:
        return "degraded"
    if state.engine.phase != "ready":
        return "degraded" if state.engine.error else "starting"
    if state.paused:
        return "paused"
    if state.trainer.phase != "ready":
        return "degraded" if state.trainer.error else "starting"
    return "training" if state.running or state.waiting else "serving"
