"""A past step with its inputs, as needed to repeat it without some of its examples."""

from collections.abc import Collection

import msgspec

from apollod.core.intake.events import Tier


class Learned(msgspec.Struct, frozen=True):
    """`step`: its number; the rest as in its `step.started`."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    loss_limit: float
    objective: str
    window: int
    tier: Tier
    again_of: int = 0
    held: tuple[str, ...] = ()
    hold: float = 0.0

    @property
    def number(self) -> int:
        """Number of the step whose random numbers are used: the original one when a step is repeated."""
        return self.again_of or self.step

    def without(self, gone: Collection[str]) -> "Learned":
        """The step without these examples; it may have none left."""
        left = [pair for pair in zip(self.examples, self.digests, strict=True) if pair[0] not in gone]
        return msgspec.structs.replace(self, examples=tuple(e for e, _ in left), digests=tuple(d for _, d in left))
