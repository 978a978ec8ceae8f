"""Facts: a life of the daemon."""

from typing import Any, ClassVar

from apollod.core.kernel.event import Event
from apollod.core.settings import Settings


class DaemonStarted(Event, frozen=True):
    """`history_bytes`: what `[checkpoint] keep_bytes = "auto"` stands for in this life; 0: no limit."""

    kind: ClassVar[str] = "daemon.started"
    version: ClassVar[int] = 3
    pid: int
    version_name: str
    settings: Settings
    state_dir: str = ""
    history_bytes: int = 0


class ConfigChanged(Event, frozen=True):
    """This life has other settings than the one before. `changed`: by key, such as "trainer.lr", the value before
    and the value now."""

    kind: ClassVar[str] = "config.changed"
    changed: dict[str, list[Any]]


class ShutdownRequested(Event, frozen=True):
    kind: ClassVar[str] = "shutdown.requested"
    reason: str


class DaemonStopped(Event, frozen=True):
    kind: ClassVar[str] = "daemon.stopped"
    step: int
    fingerprint: str


class TrainingPaused(Event, frozen=True):
    kind: ClassVar[str] = "training.paused"
    by: str
    reason: str = ""


class TrainingHalted(Event, frozen=True):
    """Training stopped by itself; serving goes on. Only `ctl resume` starts it again."""

    kind: ClassVar[str] = "training.halted"
    reason: str
    hint: str = ""


class TrainingResumed(Event, frozen=True):
    kind: ClassVar[str] = "training.resumed"
    by: str
