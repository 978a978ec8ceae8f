"""The parts of `status` about engine and trainer, and their progress towards the next step."""

import msgspec


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
