"""The parts of `status` about the daemon itself."""

from msgspec.structs import replace

from apollod.core.children.state import Child
from apollod.core.quality.day import stops
from apollod.core.quality.resuming import may_repeat
from apollod.core.schedules import elapsed_s
from apollod.core.state import State
from apollod.core.training.status import step_runs

STATES = ("starting", "serving", "training", "paused", "degraded", "stopping")
"""values of `Status.state`; a newer daemon may have more"""


def phase(state: State, journal_error: str) -> str:
    """One of STATES."""
    if state.daemon.stopping or state.daemon.stopped:
        return "stopping"
    if journal_error or state.daemon.halted or state.children.engine.given_up or state.children.trainer.given_up:
        return "degraded"
    if state.children.engine.phase != "ready":
        return "degraded" if state.children.engine.error else "starting"
    if state.daemon.paused:
        return "training" if step_runs(state) else "paused"
    if state.children.trainer.phase != "ready":
        return "degraded" if state.children.trainer.error else "starting"
    if state.quality.incident is not None:
        return "paused" if _person_resumes(state) else "degraded"
    return "training" if state.training.running or state.intake.pending else "serving"


def _person_resumes(state: State) -> bool:
    """True if training waits for a person once the last good weights are back."""
    settings, incident = state.daemon.settings, state.quality.incident
    if incident is not None and incident.phase == "named" and not may_repeat(state.quality, incident):
        return True
    return settings is not None and (settings.quality.resume == "manual" or stops(state.quality.alarms_ns))


def error(state: State, journal_error: str) -> str:
    """Why the daemon does less than it should; empty: all is well."""
    engine, trainer = state.children.engine, state.children.trainer
    return journal_error or state.daemon.halted or engine.error or (trainer.error if trainer.phase != "ready" else "")


def uptime_s(state: State, now_ns: int) -> float:
    """Seconds since the daemon started."""
    return elapsed_s(state.daemon.started_at_ns, now_ns)


def not_begun(state: State) -> State:
    """The state to show before this life's first event: without children and halts of the last life."""
    children = replace(state.children, engine=Child(), trainer=Child(), engine_facts=None, bound=None)
    daemon = replace(state.daemon, stopping=False, stopped=False, halted="")
    return replace(state, children=children, daemon=daemon, training=replace(state.training, running=None))
