"""The state of a recovery: where it starts, and the steps that it has to run again."""

import msgspec

from apollod.core.checkpoints.state import CheckpointRef
from apollod.core.recovery.events import BaseKept, RecordedStep
from apollod.core.settings import ProductsDtype, Settings


class RecoveryState(msgspec.Struct):
    """The way to the weights of the last step from what lies on disk."""

    base_fingerprint: str = ""
    base: BaseKept | None = None
    """a second way to the weights of version 0"""
    base_lost: str = ""
    """why there is none"""
    origin: CheckpointRef | None = None
    """the checkpoint from which recovery goes on, None: the base. The newest one, unless steps were taken back since"""
    since: list[RecordedStep] = []
    """steps from there to the version of the weights, in order"""
    since_ns: int = 0
    """when the first of them was completed, or the checkpoint before it was committed"""
    learned_with: Settings | None = None
    """in force when the last of them was completed"""
    products: ProductsDtype = "bf16"
    """of the trainer that was bound last: what the next step is made with"""
    ran_on: dict[str, str] = {}
    """what the trainer was bound on then: see `TrainerBound.versions`"""
