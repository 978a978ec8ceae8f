"""Engine and trainer, and where they are on their way to the next step."""

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
    """why it ended last, unless it was asked to"""


class Engine(Process, frozen=True, kw_only=True):
    """vLLM."""

    url: str
    """of its API; empty until it is ready"""
    model: str
    """the name under which the model is served; empty until it is ready"""
    path: str = ""
    """directory that it loaded the model from"""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of engine and trainer towards the next step."""

    phase: str
    """`loading`: the engine reads the weights; `compiling`: it has them and gets ready to serve; `attaching`: the
    trainer binds to them; `restoring`: a checkpoint; `replaying`: steps since then; `aligning`: both are compared"""
    elapsed_s: float
    """since the process was started, or the comparison or the rollback began"""
    done: int = 0
    """steps that were replayed"""
    of: int = 0
    """steps to replay"""
