"""Inputs: the trainer bound its memory, restored weights, or kept the base weights."""

from apollod.core.kernel.input import Input
from apollod.core.settings import ProductsDtype
from apollod.core.training.inputs import Undoable


class Bound(Input, frozen=True, tag="bound"):
    """The trainer's model is bound; `fingerprint`: of the memory as found. For the others see `TrainerBound`."""

    fingerprint: str
    parameters: int
    elements: int
    versions: dict[str, str]
    held: dict[str, str] = {}
    tied: dict[str, str] = {}
    products: ProductsDtype = "bf16"
    template: str = ""


class Restored(Input, frozen=True, tag="restored"):
    """Weights and optimizer after a Restore. `undone`: they are those of its `target`, by undoing steps in memory."""

    fingerprint: str
    state_bytes: int
    undone: bool = False
    undoable: Undoable | None = None


class BaseDone(Input, frozen=True):
    """The base was kept, or was not (`error`)."""

    path: str
    how: str = ""
    bytes: int = 0
    seconds: float = 0.0
    error: str = ""
