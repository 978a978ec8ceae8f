"""A life of the daemon: start and end, settings, pauses and halts. Events, inputs, effects and state."""

from typing import Any, ClassVar

import msgspec

from apollod.core.facts.judging.events import JudgeConfigured
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.settings import Settings

# --- events ----------------------------------------------------------------------------------------------------------


class CarriedWindow(msgspec.Struct, frozen=True, gc=False):
    """A window that goes on in the next journal; see `WindowOpened`. `losses`: number of applied steps, `loss_total`:
    the sum of their losses."""

    number: int
    planned: int
    steps: int
    examples: int
    losses: int
    loss_total: float


class JournalContinued(Event, frozen=True):
    """The first event of a journal that goes on where an archived one ends.

    `archive`: path of the archived one; it has `events` events, the last of them with the hash `head_hash` (hex). The
    new one begins at version `step` of the weights, with `fingerprint`, which the checkpoint at `checkpoint` holds.
    Steps up to `last_step` (failed ones have numbers, too) are in the archive.
    """

    kind: ClassVar[str] = "journal.continued"
    archive: str
    events: int
    head_hash: str
    step: int
    fingerprint: str
    checkpoint: str
    last_step: int

    def key(self) -> str:
        return str(self.step)


class JournalCarried(Event, frozen=True):
    """The last event that a journal takes over from its archive: facts that no other event repeats.

    Totals as of the archive's end; `alone`: waiting examples to be learned one by one; `approved`: waiting examples
    that were approved.
    """

    kind: ClassVar[str] = "journal.carried"
    model_path: str
    base_fingerprint: str
    accepted: int
    rejected: int
    duplicates: int
    trained: int
    skipped: int
    held: int
    last_step_ns: int
    windows: int
    window: CarriedWindow | None = None
    alone: tuple[str, ...] = ()
    rated: int = 0
    measurements: int = 0
    alarms: int = 0
    """alarms of the quality guard"""
    alarms_ns: tuple[int, ...] = ()
    """times of those of its last day"""
    measurements_failed: int = 0
    steps_taken_back: int = 0
    """by alarms"""
    search_replays: int = 0
    approved: tuple[str, ...] = ()
    pairs: int = 0
    ratings: int = 0
    margins: tuple[float, ...] = ()
    right: tuple[float, ...] = ()
    gained: tuple[float, ...] = ()
    """the slice of `core.facts.preferences`"""


class DaemonStarted(Event, frozen=True):
    """`history_bytes`: value of `[checkpoint] keep_bytes = "auto"` in this life; 0: no limit. `follow_up_question`:
    digest of the question about follow-ups and of its cases."""

    kind: ClassVar[str] = "daemon.started"
    version: ClassVar[int] = 5
    pid: int
    version_name: str
    settings: Settings
    state_dir: str = ""
    history_bytes: int = 0
    follow_up_question: str = ""


class ConfigChanged(Event, frozen=True):
    """The settings differ from those of the life before. `changed`: by key, such as "trainer.lr", the value before and
    the value now."""

    kind: ClassVar[str] = "config.changed"
    changed: dict[str, list[Any]]


class ShutdownRequested(Event, Input, frozen=True):
    kind: ClassVar[str] = "shutdown.requested"
    reason: str


class DaemonStopped(Event, frozen=True):
    kind: ClassVar[str] = "daemon.stopped"
    step: int
    fingerprint: str


class TrainingPaused(Event, Input, frozen=True):
    kind: ClassVar[str] = "training.paused"
    by: str
    reason: str = ""


class TrainingHalted(Event, frozen=True):
    """Training stopped by itself; serving goes on. Only `ctl resume` starts it again."""

    kind: ClassVar[str] = "training.halted"
    reason: str
    hint: str = ""


class TrainingResumed(Event, Input, frozen=True):
    kind: ClassVar[str] = "training.resumed"
    by: str


# --- inputs ----------------------------------------------------------------------------------------------------------


class Started(Input, frozen=True):
    """The daemon is up on this journal. `base_problem`: defect of the kept base weights. `free_bytes`: free space on
    the disk of the state directory; None: not known. `judge`: the judge; None: none. `references_problem`: why looks
    cannot be compared with the baseline's answers; empty: they can, or need not be."""

    pid: int
    version_name: str
    settings: Settings
    state_dir: str
    base_problem: str = ""
    free_bytes: int | None = None
    judge: JudgeConfigured | None = None
    references_problem: str = ""
    follow_up_question: str = ""
    """see `DaemonStarted`"""


# --- effects ---------------------------------------------------------------------------------------------------------


class Exit(Effect, frozen=True):
    """End the daemon; all children are down."""


# --- state -----------------------------------------------------------------------------------------------------------


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
