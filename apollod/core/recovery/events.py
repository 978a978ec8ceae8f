"""Facts: steps run again, and the weights before the first one."""

from typing import ClassVar

import msgspec

from apollod.core.kernel.event import Event
from apollod.core.settings import ProductsDtype


class RecordedStep(msgspec.Struct, frozen=True, gc=False):
    """A completed step as it was done: what running it again needs, and what must come out."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    loss_limit: float
    applied: bool
    skipped: int
    fingerprint: str
    objective: str = "sft"
    products: ProductsDtype = "bf16"
    """see `TrainerBound`"""
    again_of: int = 0
    """see `StepStarted`"""
    held: tuple[str, ...] = ()
    hold: float = 0.0


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
    """The weights before the first step have a second way to them. `how`: reflink, link (hard) or copy."""

    kind: ClassVar[str] = "base.kept"
    path: str
    how: str
    bytes: int
    seconds: float


class BaseLost(Event, frozen=True):
    """They could not be kept, or what was kept is gone or was changed: a replay from 0 needs them from elsewhere."""

    kind: ClassVar[str] = "base.lost"
    path: str
    reason: str
