"""What the world is asked to do: are weights still shared?."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class ProbeTrainer(Effect, frozen=True):
    """Have the trainer score the probe with the weights of `step`; with `digests` it digests every tensor instead."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("step", "digests")
    step: int
    digests: bool = False


class ScoreProbe(Effect, frozen=True):
    """Have the engine score `ids`, once it is up to date; `trainer`: the trainer's log-probabilities of ids 1..
    given those before."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("step",)
    step: int
    ids: tuple[int, ...]
    trainer: tuple[float, ...]
    seconds: float


class CompareWeights(Effect, frozen=True):
    """Have the engine compare every tensor it multiplies with to the trainer's `digests` (by name)."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("step",)
    step: int
    digests: dict[str, str]
