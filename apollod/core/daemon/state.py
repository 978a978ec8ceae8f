"""State: the life of the daemon."""

import msgspec

from apollod.core.daemon.events import JournalContinued
from apollod.core.settings import Settings


class DaemonState(msgspec.Struct):
    """Settings in force, pauses, halts and stops."""

    settings: Settings | None = None
    state_dir: str = ""
    history_bytes: int = 0
    """disk space for checkpoints if `keep_bytes` is auto; 0: no limit"""
    model_path: str = ""
    """the base model this journal belongs to, fixed when a trainer is first bound to its weights; before, the model of
    the configuration"""
    started_at_ns: int = 0
    paused: bool = False
    paused_by: str = ""
    halted: str = ""
    """why training stopped by itself; empty: not halted"""
    stopping: bool = False
    stopping_since_ns: int = 0
    stopped: bool = False
    continued: JournalContinued | None = None
    """event that names the archive of earlier events; None: this journal has none"""
