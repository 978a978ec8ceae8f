"""Effects: run a step."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect
from apollod.core.settings import ProductsDtype
from apollod.core.training.events import StepStarted, all_digests, all_examples
from apollod.core.training.terms import StepTerms


class RunStep(StepTerms, Effect, frozen=True):
    """One optimizer step that learns `examples`, whose tokens have these `digests`. `replay`: the journal has its
    result already. `products`: dtype of its matrix products; None: the trainer's own choice."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("step",)
    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    replay: bool = False
    products: ProductsDtype | None = None

    @classmethod
    def of(cls, begun: StepStarted) -> "RunStep":
        """The step of this intent, without its result."""
        return cls(begun.step, all_examples(begun), all_digests(begun), begun.lr, **begun.terms())
