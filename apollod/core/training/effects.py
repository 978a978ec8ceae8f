"""What the world is asked to do: windows and steps."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect
from apollod.core.settings import ProductsDtype


class RunStep(Effect, frozen=True):
    """One optimizer step that learns `examples` (whose tokens have these `digests`) together. `loss_limit`: a loss
    above it writes nothing, 0: no limit. `replay`: the journal has its result already. `products`: what it has to
    multiply in; None: the trainer's own choice."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("step",)
    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    loss_limit: float = 0.0
    replay: bool = False
    objective: str = "sft"
    products: ProductsDtype | None = None
    again_of: int = 0
    """the step whose random numbers it takes; 0: its own"""
    held: tuple[str, ...] = ()
    """anchors, whose mean divergence counts `hold` times in the loss"""
    hold: float = 0.0
