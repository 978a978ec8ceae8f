"""Facts: are weights still shared?."""

from typing import ClassVar

from apollod.core.kernel.event import Event


class AlignmentStarted(Event, frozen=True):
    """Intent: no step begins until engine and trainer have scored the probe with the weights of `step`."""

    kind: ClassVar[str] = "alignment.started"
    step: int

    def key(self) -> str:
        return str(self.step)


class AlignmentMeasured(Event, frozen=True):
    """Log-probabilities of the same tokens, by the trainer minus by the engine.

    `tokens` were compared, of which `nonfinite` have no finite difference; `worst`: position of the largest one in the
    probe, `probe`: digest of its token ids. `aligned` false: more than `bound`, the weights are not shared.
    """

    kind: ClassVar[str] = "alignment.measured"
    step: int
    tokens: int
    mean_abs_diff: float
    max_abs_diff: float
    mean_diff: float
    worst: int
    nonfinite: int
    probe: str
    bound: float
    aligned: bool
    seconds: float

    def key(self) -> str:
        return str(self.step)


class AlignmentFailed(Event, frozen=True):
    """It could not be measured; nothing is known, training goes on, the next one is due as if it had been."""

    kind: ClassVar[str] = "alignment.failed"
    step: int
    reason: str

    def key(self) -> str:
        return str(self.step)
