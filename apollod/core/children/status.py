"""The parts of `status` about engine and trainer, and their progress towards the next step."""

import msgspec

from apollod.core.children.state import NO_ENGINE, Child
from apollod.core.kernel.composing import composed
from apollod.core.schedules import elapsed_s
from apollod.core.state import State


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A child process."""

    pid: int | None
    """null while it is down"""
    ready: bool
    """engine: it serves; trainer: weights and optimizer are those of the last step"""
    restarts: int
    """starts after the first since the daemon started"""
    given_up: bool = False
    """it crashed too often; `apollod ctl resume` tries again"""
    error: str = ""
    """why it last ended, unless on request"""


class Engine(Process, frozen=True, kw_only=True):
    """vLLM."""

    url: str
    """URL of its API; empty until it is ready"""
    model: str
    """the name under which the model is served; empty until it is ready"""
    path: str = ""
    """directory from which the model was loaded"""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of engine and trainer towards the next step."""

    phase: str
    """`loading`: the engine reads the weights; `compiling`: it prepares to serve; `attaching`: the trainer binds to
    them; `restoring`: a checkpoint; `replaying`: steps since then; `aligning`: both are compared"""
    elapsed_s: float
    """time since the start of the process, the comparison or the rollback"""
    done: int = 0
    """steps replayed so far"""
    of: int = 0
    """steps to replay"""


def trainer(state: State) -> Process:
    """The trainer's process."""
    return _process(state.children.trainer)


def engine(state: State) -> Engine:
    """The engine's process, and the model that it serves."""
    own = state.children
    return composed(Engine, own.engine_facts or NO_ENGINE, _process(own.engine), path=own.engine_dir)


def start(state: State, now_ns: int, loaded: bool, replaying: int) -> Start | None:
    """The phase of the start or comparison that steps wait for, if any. `loaded`: the engine has loaded the weights;
    `replaying`: the step that the trainer was told to replay (0: none)."""
    engine, trainer, alignment = state.children.engine, state.children.trainer, state.alignment
    if engine.phase == "spawned":
        phase, since_ns = "compiling" if loaded else "loading", engine.spawned_ns
    elif trainer.phase == "spawned" and state.children.bound is None:
        phase, since_ns = "attaching", trainer.spawned_ns
    elif trainer.phase == "spawned":
        back = state.rollback.under_way is not None
        phase, since_ns = "restoring", state.rollback.started_ns if back else trainer.spawned_ns
    elif alignment.waited_for:
        phase, since_ns = "aligning", alignment.opened_ns
    else:
        return None
    steps = [done.step for done in state.recovery.since]
    found = Start(phase=phase, elapsed_s=elapsed_s(since_ns, now_ns))
    if phase != "restoring" or replaying not in steps:
        return found
    return msgspec.structs.replace(found, phase="replaying", done=steps.index(replaying), of=len(steps))


def _process(child: Child) -> Process:
    return composed(
        Process, child, pid=child.pid or None, ready=child.phase == "ready", restarts=max(0, child.spawns - 1)
    )
