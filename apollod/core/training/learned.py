"""A past step with its inputs, as needed to repeat it without some of its examples."""

from collections.abc import Collection

import msgspec

from apollod.core.intake.events import Tier
from apollod.core.training.events import StepStarted, all_digests, all_examples
from apollod.core.training.terms import StepTerms


class Learned(StepTerms, frozen=True):
    """A completed step. `step`: its number; other fields as in its `step.started`."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    window: int
    tier: Tier

    @classmethod
    def of(cls, begun: StepStarted, tier: Tier) -> "Learned":
        """The step of this intent, whose examples are of this tier."""
        examples, digests = all_examples(begun), all_digests(begun)
        return cls(begun.step, examples, digests, begun.lr, begun.window, tier, **begun.terms())

    @property
    def number(self) -> int:
        """Number of the step whose random numbers are used: the original one when a step is repeated."""
        return self.again_of or self.step

    def without(self, gone: Collection[str]) -> "Learned":
        """The step without these examples; it may have none left."""
        left = [pair for pair in zip(self.examples, self.digests, strict=True) if pair[0] not in gone]
        return msgspec.structs.replace(self, examples=tuple(e for e, _ in left), digests=tuple(d for _, d in left))
