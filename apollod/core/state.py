"""The daemon's state, and how each fact changes it.

Law: `fold` is the only writer. It changes the state it is given and returns it, so that a million events fold in
seconds; everyone else only reads. State depends on events alone, never on a clock: times come from the event.
"""

from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

from apollod.core import events as ev
from apollod.core.schedules import CHECKPOINT_RETRY_S, EXITS_MAX, EXITS_WINDOW_S, REFUSED_MAX_S, backoff_s, is_due, refused_s

SECOND_NS = 1_000_000_000


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


class Waiting(msgspec.Struct):
    """An example that was accepted and not yet learned; `digest` is empty until it is tokenised. `alone`: a step that
    was to learn it with others failed; such examples are the first ones."""

    example: str
    digest: str = ""
    tier: ev.Tier = "bulk"
    alone: bool = False


class Running(msgspec.Struct):
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


class Done(msgspec.Struct, frozen=True):
    """What a replay of a completed step needs, and what must come out."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    loss_limit: float
    applied: bool
    skipped: int
    fingerprint: str


class CheckpointRef(msgspec.Struct, frozen=True):
    """A committed checkpoint."""

    step: int
    path: str
    fingerprint: str
    at_ns: int


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
    """How far a source is taken: next unread byte, lines seen."""

    source: str
    offset: int
    line: int


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
    since: list[Done] = []
    """steps completed after the newest checkpoint, in order"""
    learned_with: ev.Settings | None = None
    """in force when the last of them was completed"""
    checkpoints: list[CheckpointRef] = []
    checkpointing: ev.CheckpointStarted | None = None
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
    """by path"""
    counts: Counts = msgspec.field(default_factory=Counts)

    @property
    def checkpoint(self) -> CheckpointRef | None:
        """The newest committed checkpoint."""
        return self.checkpoints[-1] if self.checkpoints else None

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


def fold(state: State, recorded: ev.Recorded) -> State:
    """Apply one recorded event to `state` and return it."""
    state.seq = recorded.seq
    handler = _FOLDS.get(type(recorded.event))
    if handler is not None:
        handler(state, recorded.event, recorded.at_ns)
    return state


def _daemon_started(s: State, e: ev.DaemonStarted, at_ns: int) -> None:
    s.settings, s.state_dir, s.started_at_ns = e.settings, e.state_dir, at_ns
    s.model_path = s.model_path or e.settings.model_path
    s.stopping = s.stopped = s.engine_fresh = s.last_one_failed = False
    s.halted, s.unlearned = "", 0  # a new life tries again; what was wrong will say so again
    s.engine, s.trainer, s.engine_facts, s.bound = Child(), Child(), None, None
    s.engine_paused, s.aligning = False, None


def _shutdown_requested(s: State, e: ev.ShutdownRequested, at_ns: int) -> None:
    s.stopping = True


def _daemon_stopped(s: State, e: ev.DaemonStopped, at_ns: int) -> None:
    s.stopped = True


def _paused(s: State, e: ev.TrainingPaused, at_ns: int) -> None:
    s.paused = True


def _halted(s: State, e: ev.TrainingHalted, at_ns: int) -> None:
    s.halted = f"{e.reason}; {e.hint}" if e.hint else e.reason
    s.aligning = None


def _resumed(s: State, e: ev.TrainingResumed, at_ns: int) -> None:
    if s.halted and s.trainer.phase != "absent":
        s.trainer.doomed = True
    s.paused, s.halted, s.unlearned = False, "", 0
    for child in (s.engine, s.trainer):
        child.given_up, child.retry_at_ns, child.refusals, child.crashes_ns = False, 0, 0, []


def _engine_spawned(s: State, e: ev.EngineSpawned, at_ns: int) -> None:
    s.engine.spawned(e.pid)
    s.engine_facts, s.engine_dir = None, e.model_dir


def _engine_ready(s: State, e: ev.EngineReady, at_ns: int) -> None:
    s.engine.phase, s.engine.error, s.engine.refusals = "ready", "", 0
    s.engine_facts, s.engine_fresh = e, True


def _engine_exited(s: State, e: ev.EngineExited, at_ns: int) -> None:
    s.engine.exited(at_ns, e.reason, e.refused, e.expected)
    s.engine_facts, s.engine_fresh, s.bound = None, False, None
    s.engine_paused, s.aligning = False, None
    if s.trainer.phase != "absent":
        # Its views point into memory of an engine that is gone.
        s.trainer.phase, s.trainer.doomed = "spawned", True


def _trainer_spawned(s: State, e: ev.TrainerSpawned, at_ns: int) -> None:
    s.trainer.spawned(e.pid)
    s.bound = None


def _trainer_bound(s: State, e: ev.TrainerBound, at_ns: int) -> None:
    s.bound, s.engine_fresh = e, False
    if not s.base_fingerprint:
        s.base_fingerprint = s.fingerprint = e.fingerprint


def _trainer_attached(s: State, e: ev.TrainerAttached, at_ns: int) -> None:
    s.trainer.phase, s.trainer.error, s.state_bytes = "ready", "", e.state_bytes
    s.fence_expired, s.aligned_version = False, -1


def _trainer_exited(s: State, e: ev.TrainerExited, at_ns: int) -> None:
    if s.running is not None and s.trainer.phase == "ready" and not e.expected:
        s.running.attempts += 1
    s.trainer.exited(at_ns, e.reason, e.refused, e.expected)
    s.bound = s.aligning = None


def _source_consumed(s: State, e: ev.SourceConsumed, at_ns: int) -> None:
    s.sources[e.path] = Position(e.source, e.offset, e.line)


def _source_quarantined(s: State, e: ev.SourceQuarantined, at_ns: int) -> None:
    s.counts.rejected += 1


def _example_accepted(s: State, e: ev.ExampleAccepted, at_ns: int) -> None:
    s.counts.accepted += 1
    waiting = Waiting(e.example, tier=e.tier)
    s.waiting.append(waiting)
    s.untokenised.append(waiting)


def _example_duplicate(s: State, e: ev.ExampleDuplicate, at_ns: int) -> None:
    s.counts.duplicates += 1


def _example_encoded(s: State, e: ev.ExampleEncoded, at_ns: int) -> None:
    s.untokenised.popleft().digest = e.digest


def _example_rejected(s: State, e: ev.ExampleRejected, at_ns: int) -> None:
    s.counts.rejected += 1
    s.waiting.remove(s.untokenised.popleft())


def _window_opened(s: State, e: ev.WindowOpened, at_ns: int) -> None:
    s.window, s.windows = Window(e.window, e.planned), e.window


def _window_closed(s: State, e: ev.WindowClosed, at_ns: int) -> None:
    s.window = None


def _step_started(s: State, e: ev.StepStarted, at_ns: int) -> None:
    s.step, s.fence_expired = e.step, False
    taken = [s.waiting.popleft() for _ in ev.all_examples(e)]
    s.running = Running(
        e.step, e.parent, ev.all_examples(e), e.digests or (e.digest,), e.lr, e.loss_limit, e.window, taken[0].tier
    )
    if s.window is not None:
        s.window.steps += 1
        s.window.examples += len(taken)


def _step_completed(s: State, e: ev.StepCompleted, at_ns: int) -> None:
    examples, skipped = ev.all_examples(e), e.skipped_zero + e.skipped_nonfinite
    digests, limit = (s.running.digests, s.running.loss_limit) if s.running else (("",) * len(examples), 0.0)
    s.since.append(Done(e.step, examples, digests, e.lr, limit, e.applied, skipped, e.fingerprint))
    s.version, s.fingerprint, s.running, s.last_training_ns = e.step, e.fingerprint, None, at_ns
    s.learned_with = s.settings
    if not e.applied:
        s.counts.skipped += len(examples)
        s.unlearned += 1
        return
    s.counts.trained += len(examples)
    s.unlearned = 0
    if s.window is not None and e.loss is not None:
        s.window.losses += 1
        s.window.loss_total += e.loss


def _step_failed(s: State, e: ev.StepFailed, at_ns: int) -> None:
    running, s.running = s.running, None
    if e.apart and running is not None:
        again = [Waiting(*pair, running.tier, alone=True) for pair in zip(running.examples, running.digests, strict=True)]
        s.waiting.extendleft(reversed(again))
    else:
        s.counts.held += 1
        s.unlearned += 1
    _absolve(s.trainer, e.attempts)


def _absolve(trainer: Child, attempts: int) -> None:
    """Trainers that died over an example which is now out of the way say nothing about the next one."""
    if trainer.phase == "ready":  # the last of them said why and is about to leave; it takes no more steps
        trainer.phase, trainer.doomed = "spawned", True
        attempts -= 1
    if attempts:
        del trainer.crashes_ns[-attempts:]
        trainer.given_up = len(trainer.crashes_ns) >= EXITS_MAX


def _engine_paused(s: State, e: ev.EnginePaused, at_ns: int) -> None:
    s.engine_paused = True


def _engine_resumed(s: State, e: ev.EngineResumed, at_ns: int) -> None:
    s.engine_paused, s.fence_expired = False, e.expired
    s.serve_until_ns = at_ns + int(e.seconds * SECOND_NS) if e.active else 0


def _alignment_started(s: State, e: ev.AlignmentStarted, at_ns: int) -> None:
    s.aligning = e


def _alignment_measured(s: State, e: ev.AlignmentMeasured, at_ns: int) -> None:
    s.alignment, s.aligned_version = e, e.step
    if e.aligned:
        s.aligning = None  # otherwise training halts as soon as it is known where the difference comes from


def _alignment_failed(s: State, e: ev.AlignmentFailed, at_ns: int) -> None:
    s.aligning, s.aligned_version = None, e.step


def _checkpoint_started(s: State, e: ev.CheckpointStarted, at_ns: int) -> None:
    s.checkpointing = e


def _checkpoint_committed(s: State, e: ev.CheckpointCommitted, at_ns: int) -> None:
    s.checkpointing = None
    s.checkpoints = [c for c in s.checkpoints if c.path != e.path] + [CheckpointRef(e.step, e.path, e.fingerprint, at_ns)]
    s.since = [d for d in s.since if d.step > e.step]


def _checkpoint_failed(s: State, e: ev.CheckpointFailed, at_ns: int) -> None:
    s.checkpointing = None
    s.checkpoint_retry_ns = at_ns + int(CHECKPOINT_RETRY_S * SECOND_NS)
    s.last_one_failed = s.stopping


def _checkpoint_removed(s: State, e: ev.CheckpointRemoved, at_ns: int) -> None:
    s.checkpoints = [c for c in s.checkpoints if c.path != e.path]


def _base_kept(s: State, e: ev.BaseKept, at_ns: int) -> None:
    s.base, s.base_lost = e, ""


def _base_lost(s: State, e: ev.BaseLost, at_ns: int) -> None:
    s.base, s.base_lost = None, e.reason


_FOLDS: dict[type[ev.Event], Callable[..., None]] = {
    ev.DaemonStarted: _daemon_started,
    ev.ShutdownRequested: _shutdown_requested,
    ev.DaemonStopped: _daemon_stopped,
    ev.TrainingPaused: _paused,
    ev.TrainingHalted: _halted,
    ev.TrainingResumed: _resumed,
    ev.EngineSpawned: _engine_spawned,
    ev.EngineReady: _engine_ready,
    ev.EngineExited: _engine_exited,
    ev.TrainerSpawned: _trainer_spawned,
    ev.TrainerBound: _trainer_bound,
    ev.TrainerAttached: _trainer_attached,
    ev.TrainerExited: _trainer_exited,
    ev.SourceConsumed: _source_consumed,
    ev.SourceQuarantined: _source_quarantined,
    ev.ExampleAccepted: _example_accepted,
    ev.ExampleDuplicate: _example_duplicate,
    ev.ExampleEncoded: _example_encoded,
    ev.ExampleRejected: _example_rejected,
    ev.WindowOpened: _window_opened,
    ev.WindowClosed: _window_closed,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.EnginePaused: _engine_paused,
    ev.EngineResumed: _engine_resumed,
    ev.AlignmentStarted: _alignment_started,
    ev.AlignmentMeasured: _alignment_measured,
    ev.AlignmentFailed: _alignment_failed,
    ev.CheckpointStarted: _checkpoint_started,
    ev.CheckpointCommitted: _checkpoint_committed,
    ev.CheckpointFailed: _checkpoint_failed,
    ev.CheckpointRemoved: _checkpoint_removed,
    ev.BaseKept: _base_kept,
    ev.BaseLost: _base_lost,
}
