"""Engine and trainer as the journal tells them."""

from typing import Literal

import msgspec

from apollod.core.children.events import EngineReady, TrainerBound
from apollod.core.schedules import EXITS_MAX, EXITS_WINDOW_S, NO_FAILURE, Retry, backoff_s, is_recent, refused_s

NO_ENGINE = EngineReady(
    pid=0, url="", model="", bridge="", parameters=0, live=0, cast=0, rederive=0, frozen=0, bytes=0, seconds=0.0
)
"""facts to show before an engine was ready"""


class Child(msgspec.Struct):
    """A child process as the journal tells it."""

    phase: Literal["absent", "spawned", "ready"] = "absent"
    """ready: the engine serves; the trainer's weights and optimizer are at the last step"""
    pid: int = 0
    spawns: int = 0
    crashes_ns: list[int] = []
    """times of recent unexpected exits"""
    refusals: int = 0
    """in a row"""
    retry: Retry = NO_FAILURE
    given_up: bool = False
    doomed: bool = False
    """it was ended on purpose, which does not count as a crash"""
    error: str = ""
    spawned_ns: int = 0
    """start time of the present process"""

    def may_start(self, now_ns: int) -> bool:
        """True if the child is down and its back-off has passed."""
        return self.phase == "absent" and not self.given_up and self.retry.is_due(now_ns)

    def spawned(self, pid: int, at_ns: int) -> None:
        self.phase, self.pid, self.doomed, self.spawned_ns = "spawned", pid, False, at_ns
        self.spawns += 1

    def exited(self, at_ns: int, reason: str, refused: bool, expected: bool) -> None:
        """Plan the next start: at once after an expected end, by back-off after a crash, patiently after a refusal."""
        self.phase, self.pid, self.doomed = "absent", 0, False
        if expected:
            return
        self.error = reason
        if refused:
            self.refusals += 1
            self.retry = self.retry.after(at_ns, refused_s(self.refusals))
            return
        self.refusals = 0
        self.crashes_ns = [t for t in self.crashes_ns if is_recent(at_ns, t, EXITS_WINDOW_S)] + [at_ns]
        self.retry = self.retry.after(at_ns, backoff_s(len(self.crashes_ns)))
        self.given_up = len(self.crashes_ns) >= EXITS_MAX

    def absolved(self, attempts: int) -> None:
        """Forget this many crashes: they were caused by an example that is now set aside."""
        if attempts:
            del self.crashes_ns[-attempts:]
            self.given_up = len(self.crashes_ns) >= EXITS_MAX


class ChildrenState(msgspec.Struct):
    """Both children, and the facts they reported."""

    engine: Child = msgspec.field(default_factory=Child)
    trainer: Child = msgspec.field(default_factory=Child)
    engine_facts: EngineReady | None = None
    engine_dir: str = ""
    """the directory that the engine was started on"""
    engine_fresh: bool = False
    """no trainer was bound since the engine loaded its weights"""
    bound: TrainerBound | None = None
    state_bytes: int = 0
    """size of the optimizer's state"""

    @property
    def outlived(self) -> bool:
        """True if the trainer's view of the weights survives the engine."""
        return self.engine_facts is not None and self.engine_facts.outlives_engine
