"""The state of a recovery: its start, and the steps to run again."""

import msgspec

from apollod.core.checkpoints.state import CheckpointRef
from apollod.core.recovery.events import BaseKept, RecordedStep
from apollod.core.settings import ProductsDtype, Settings


class RecoveryState(msgspec.Struct):
    """The way from the files on disk to the weights of the last step."""

    base_fingerprint: str = ""
    base: BaseKept | None = None
    """kept weights of version 0"""
    base_lost: str = ""
    """why they are not kept"""
    origin: CheckpointRef | None = None
    """the checkpoint from which recovery starts, None: the base. The newest one, unless steps were taken back since"""
    since: list[RecordedStep] = []
    """steps from `origin` to the version of the weights, in order"""
    since_ns: int = 0
    """time of completion of the first of them, or of the checkpoint before"""
    learned_with: Settings | None = None
    """settings when the last of them was completed"""
    products: ProductsDtype = "bf16"
    """dtype of matrix products of the trainer bound last, for the next step"""
    ran_on: dict[str, str] = {}
    """environment of the trainer then: see `TrainerBound.versions`"""
