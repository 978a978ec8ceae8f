"""Windows, steps, and the version of the weights."""

import msgspec

from apollod.core.training.events import StepStarted, all_examples
from apollod.core.training.pace import Pace


class Running(msgspec.Struct, gc=False):
    """The step whose intent is open. `attempts`: trainers that died over it."""

    begun: StepStarted
    started_ns: int = 0
    """when its intent was recorded"""
    attempts: int = 0

    @property
    def step(self) -> int:
        """Its number."""
        return self.begun.step

    @property
    def examples(self) -> tuple[str, ...]:
        """Those that it learns, in order."""
        return all_examples(self.begun)


class Window(msgspec.Struct):
    """A run of steps; `planned` were waiting when it opened, `examples` are learned or being learned.
    `losses` of steps that were applied have the sum `loss_total`."""

    number: int
    planned: int
    steps: int = 0
    examples: int = 0
    losses: int = 0
    loss_total: float = 0.0


class TrainingCounts(msgspec.Struct):
    """Examples, over the life of the journal."""

    trained: int = 0
    skipped: int = 0
    """their step wrote nothing"""
    held: int = 0
    """of journals before this one; those of this one are in `review`"""


class TrainingState(msgspec.Struct):
    """Examples that were learned, and the step under way."""

    step: int = 0
    """number of the last step that was started; never reused"""
    version: int = 0
    """number of the last completed step"""
    fingerprint: str = ""
    running: Running | None = None
    unlearned: int = 0
    """steps in a row that wrote nothing; those of what is known already do not count"""
    window: Window | None = None
    windows: int = 0
    last_step_ns: int = 0
    """when the last step was completed"""
    recent: list[Pace] = []
    """of the last steps, the newest one last"""
    counts: TrainingCounts = msgspec.field(default_factory=TrainingCounts)
