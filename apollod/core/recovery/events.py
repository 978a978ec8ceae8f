"""Events: steps run again, and the weights before the first one."""

from typing import ClassVar

from apollod.core.kernel.event import Event
from apollod.core.settings import ProductsDtype
from apollod.core.training.events import StepCompleted, StepStarted, all_digests, all_examples
from apollod.core.training.terms import StepTerms


class RecordedStep(StepTerms, frozen=True):
    """A completed step, with the inputs to run it again and the expected result."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    applied: bool
    skipped: int
    fingerprint: str
    products: ProductsDtype = "bf16"
    """see `TrainerBound`"""

    @classmethod
    def of(cls, begun: StepStarted | None, done: StepCompleted, products: ProductsDtype) -> "RecordedStep":
        """The step with this intent and this result. `begun` None: not known."""
        examples, skipped = all_examples(done), done.skipped_zero + done.skipped_nonfinite
        digests, terms = (all_digests(begun), begun.terms()) if begun else (("",) * len(examples), {})
        return cls(
            done.step, examples, digests, done.lr, done.applied, skipped, done.fingerprint, products, **terms
        )  # fmt: skip


class ReplayVerified(Event, frozen=True):
    """Steps after a checkpoint were run again and every fingerprint was the recorded one."""

    kind: ClassVar[str] = "replay.verified"
    first: int
    last: int
    fingerprint: str


class ReplayDiverged(Event, frozen=True):
    """A step run again did not give the recorded bits. Training stops; serving goes on."""

    kind: ClassVar[str] = "replay.diverged"
    step: int
    expected: str
    found: str
    detail: str


class BaseKept(Event, frozen=True):
    """The weights before the first step were kept in a second place. `how`: reflink, link (hard) or copy."""

    kind: ClassVar[str] = "base.kept"
    path: str
    how: str
    bytes: int
    seconds: float


class BaseLost(Event, frozen=True):
    """The weights before the first step could not be kept, or the kept files are gone or changed: a replay from 0 needs
    them from elsewhere."""

    kind: ClassVar[str] = "base.lost"
    path: str
    reason: str
