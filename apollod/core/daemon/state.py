"""The life of the daemon as its events tell it."""

import msgspec

from apollod.core.daemon.events import JournalContinued
from apollod.core.settings import Settings


class DaemonState(msgspec.Struct):
    """Settings in force, and what people and defects keep the daemon from doing."""

    settings: Settings | None = None
    state_dir: str = ""
    history_bytes: int = 0
    """that checkpoints may take where `keep_bytes` is auto; 0: no limit"""
    model_path: str = ""
    """the base model this journal belongs to, from the first time on that a trainer was bound to its weights; before,
    the model of the configuration"""
    started_at_ns: int = 0
    paused: bool = False
    paused_by: str = ""
    halted: str = ""
    """why training stopped by itself; empty: it did not"""
    stopping: bool = False
    stopping_since_ns: int = 0
    stopped: bool = False
    continued: JournalContinued | None = None
    """the archive that holds what was before this journal; None: nothing was"""
