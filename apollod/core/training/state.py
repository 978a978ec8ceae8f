"""State: windows, steps, and the version of the weights."""

import msgspec

from apollod.core.training.events import StepStarted, all_examples
from apollod.core.training.pace import Pace


class Running(msgspec.Struct, gc=False):
    """The step whose intent is open. `attempts`: trainers that died over it."""

    begun: StepStarted
    started_ns: int = 0
    """time of its intent"""
    attempts: int = 0

    @property
    def step(self) -> int:
        """Number of the step."""
        return self.begun.step

    @property
    def examples(self) -> tuple[str, ...]:
        """Examples that it learns, in order."""
        return all_examples(self.begun)


class Window(msgspec.Struct):
    """A run of steps; `planned`: examples that waited when it opened; `examples`: learned ones, including those of the
    running step. `losses`: number of applied steps, `loss_total`: the sum of their losses."""

    number: int
    planned: int
    steps: int = 0
    examples: int = 0
    losses: int = 0
    loss_total: float = 0.0


class TrainingCounts(msgspec.Struct):
    """Counts of examples, over the life of the journal."""

    trained: int = 0
    skipped: int = 0
    """their step wrote nothing"""
    held: int = 0
    """in earlier journals; for this one see `review`"""


class TrainingState(msgspec.Struct):
    """Counts of learned examples, and the step under way."""

    step: int = 0
    """number of the last step that was started; never reused"""
    version: int = 0
    """number of the last completed step"""
    fingerprint: str = ""
    running: Running | None = None
    unlearned: int = 0
    """steps in a row that wrote nothing, without those of known examples"""
    window: Window | None = None
    windows: int = 0
    last_step_ns: int = 0
    """time at which the last step was completed"""
    recent: list[Pace] = []
    """the last steps, the newest last"""
    counts: TrainingCounts = msgspec.field(default_factory=TrainingCounts)
