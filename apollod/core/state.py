"""The daemon's state: all that decisions may depend on.

Law: only `core.fold` writes it; everyone else reads. State depends on events alone, never on a clock: times come from the
event.
"""

from collections import deque
from typing import Literal

import msgspec

from apollod.core import events as ev
from apollod.core.schedules import EXITS_MAX, EXITS_WINDOW_S, REFUSED_MAX_S, backoff_s, is_due, refused_s

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS


class Child(msgspec.Struct):
    """A child process as the journal tells it."""

    phase: Literal["absent", "spawned", "ready"] = "absent"
    """ready: engine serves / trainer's weights and optimizer are at the last step"""
    pid: int = 0
    spawns: int = 0
    crashes_ns: list[int] = []
    """times of recent unexpected exits"""
    refusals: int = 0
    """in a row"""
    retry_at_ns: int = 0
    given_up: bool = False
    doomed: bool = False
    """its end is our own doing and counts as no crash"""
    error: str = ""

    def may_start(self, now_ns: int) -> bool:
        """Is it down, and has the back-off passed?"""
        return self.phase == "absent" and not self.given_up and is_due(now_ns, self.retry_at_ns, REFUSED_MAX_S)

    def spawned(self, pid: int) -> None:
        self.phase, self.pid, self.doomed = "spawned", pid, False
        self.spawns += 1

    def exited(self, at_ns: int, reason: str, refused: bool, expected: bool) -> None:
        """Plan the next start: at once after an expected end, by back-off after a crash, patiently after a refusal."""
        self.phase, self.pid, self.doomed = "absent", 0, False
        if expected:
            return
        self.error = reason
        if refused:
            self.refusals += 1
            self.retry_at_ns = at_ns + int(refused_s(self.refusals) * SECOND_NS)
            return
        self.refusals = 0
        self.crashes_ns = [t for t in self.crashes_ns if at_ns - t < EXITS_WINDOW_S * SECOND_NS] + [at_ns]
        self.retry_at_ns = at_ns + int(backoff_s(len(self.crashes_ns)) * SECOND_NS)
        self.given_up = len(self.crashes_ns) >= EXITS_MAX


class Waiting(msgspec.Struct, gc=False):
    """An example that was accepted and not yet learned; `digest` is empty until it is tokenised. `alone`: a step that
    was to learn it with others failed; such examples are the first ones."""

    example: str
    digest: str = ""
    tier: ev.Tier = "bulk"
    alone: bool = False


class Running(msgspec.Struct, gc=False):
    """The step whose intent is open. `attempts`: trainers that died over it."""

    step: int
    parent: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    loss_limit: float
    window: int
    tier: ev.Tier
    attempts: int = 0


class CheckpointRef(msgspec.Struct, frozen=True, gc=False):
    """A committed checkpoint. `bytes`: of its directory; `delta_bytes`: of the way back to the one before it."""

    step: int
    path: str
    fingerprint: str
    at_ns: int
    bytes: int = 0
    delta_bytes: int = 0
    full: bool = False


class Window(msgspec.Struct):
    """A run of steps; `planned` were waiting when it opened, `examples` are learned or being learned.
    `losses` of steps that were applied have the sum `loss_total`."""

    number: int
    planned: int
    steps: int = 0
    examples: int = 0
    losses: int = 0
    loss_total: float = 0.0


class Position(msgspec.Struct, frozen=True):
    """How far a source is taken: next unread byte, lines seen, and the digest of the last bytes before it, if it is known."""

    source: str
    offset: int
    line: int
    tail: str = ""

    @property
    def file(self) -> str:
        """The identity of the file, which stays however often it is truncated and written anew."""
        return self.source.partition("~")[0]

    def anew(self) -> "Position":
        """The beginning of the source that the file becomes when it is written anew."""
        file, _, times = self.source.partition("~")
        return Position(f"{file}~{int(times or 1) + 1}", 0, 0)


class Counts(msgspec.Struct):
    """Totals over the life of the journal."""

    accepted: int = 0
    trained: int = 0
    skipped: int = 0
    """their step wrote nothing"""
    held: int = 0
    rejected: int = 0
    duplicates: int = 0


class State(msgspec.Struct):
    """Everything decisions may depend on."""

    seq: int = 0
    settings: ev.Settings | None = None
    state_dir: str = ""
    model_path: str = ""
    """the base model this journal belongs to"""
    started_at_ns: int = 0
    paused: bool = False
    stopping: bool = False
    stopped: bool = False
    halted: str = ""
    engine: Child = msgspec.field(default_factory=Child)
    trainer: Child = msgspec.field(default_factory=Child)
    engine_facts: ev.EngineReady | None = None
    engine_dir: str = ""
    """the directory that the engine was started on"""
    engine_fresh: bool = False
    """no trainer has been bound since the engine loaded its weights"""
    bound: ev.TrainerBound | None = None
    state_bytes: int = 0
    step: int = 0
    """number of the last step that was started; never reused"""
    version: int = 0
    """number of the last completed step"""
    base_fingerprint: str = ""
    base: ev.BaseKept | None = None
    """a second way to the weights of version 0"""
    base_lost: str = ""
    """why there is none"""
    fingerprint: str = ""
    running: Running | None = None
    unlearned: int = 0
    """steps in a row that wrote nothing"""
    origin: CheckpointRef | None = None
    """the checkpoint from which recovery goes on, None: the base. The newest one, unless steps were taken back since"""
    since: list[ev.Again] = []
    """steps from there to `version`, in order"""
    learned_with: ev.Settings | None = None
    """in force when the last of them was completed"""
    checkpoints: list[CheckpointRef] = []
    """in the order in which they were written; the model directory holds the weights of the last"""
    checkpointing: ev.CheckpointStarted | None = None
    removed: str = ""
    """the last one that made room"""
    hook_due: CheckpointRef | None = None
    """the newest checkpoint, until the user's command has done with it"""
    rollback_wanted: ev.RollbackRequested | None = None
    rolling_back: ev.RollbackStarted | None = None
    rollback_ns: int = 0
    undone: dict[str, None] = {}
    """examples whose steps were taken back and that are not to be learned again, in order"""
    last_one_failed: bool = False
    """the checkpoint that a shutdown asked for could not be written"""
    checkpoint_retry_ns: int = 0
    """no checkpoint by itself before this time, after one failed"""
    engine_paused: bool = False
    """requests wait for a fenced write"""
    serve_until_ns: int = 0
    """no fenced step before this time: requests run for as long as they waited"""
    fence_expired: bool = False
    """the write went on after the longest pause; what follows until the next step is not fenced"""
    aligning: ev.AlignmentStarted | None = None
    alignment: ev.AlignmentMeasured | None = None
    """the newest one"""
    aligned_version: int = -1
    """version at which this trainer and engine were last compared; -1: not yet"""
    last_training_ns: int = 0
    waiting: deque[Waiting] = msgspec.field(default_factory=deque)
    """accepted examples in order; tokenised ones first"""
    untokenised: deque[Waiting] = msgspec.field(default_factory=deque)
    """the tail of `waiting` that has no digest yet, the same objects"""
    window: Window | None = None
    windows: int = 0
    sources: dict[str, Position] = {}
    """by the identity of their files: another file at the same path says nothing about the one that was there"""
    counts: Counts = msgspec.field(default_factory=Counts)

    @property
    def checkpoint(self) -> CheckpointRef | None:
        """The newest committed checkpoint."""
        return self.checkpoints[-1] if self.checkpoints else None

    def checkpoint_at(self, path: str) -> CheckpointRef | None:
        """The committed checkpoint in a directory."""
        return next((c for c in self.checkpoints if c.path == path), None)

    @property
    def unsaved(self) -> bool:
        """Are the weights others than those of the newest checkpoint?"""
        return bool(self.since) or self.taken_back

    @property
    def taken_back(self) -> bool:
        """Does the model directory hold steps that were taken back since?"""
        return self.origin is not self.checkpoint and self.origin != self.checkpoint

    @property
    def trainable(self) -> bool:
        """May a new step begin, as far as children and people go?"""
        if self.engine_paused or self.aligning is not None:
            return False  # a step would begin in the middle of what they are for
        return self.trainer.phase == "ready" and not (self.paused or self.stopping or self.halted)

    @property
    def queued(self) -> int:
        """Examples waiting for their step, the running one included."""
        return len(self.waiting) + (len(self.running.examples) if self.running else 0)
