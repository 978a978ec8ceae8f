"""Effects: ask trainer and engine for log-probabilities of the same text, and compare weights where these differ."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class ProbeTrainer(Effect, frozen=True, tag="probe"):
    """Have the trainer score the first `tokens` of the probe with the weights of `step`; with `digests` it digests
    every tensor instead. `gives_way`: it stops at the next other request."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number", "digests")
    step: int
    number: int
    tokens: int = 0
    gives_way: bool = False
    digests: bool = False


class ScoreProbe(Effect, frozen=True):
    """Have the engine score `ids`, once it is up to date; `trainer`: the trainer's log-probabilities of ids 1.. given
    those before. `patience_s`: seconds after which to report that a step should wait no longer; None: never."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    step: int
    number: int
    ids: tuple[int, ...]
    trainer: tuple[float, ...]
    seconds: float
    patience_s: float | None = None


class DropScore(Effect, frozen=True):
    """Drop the engine's answer of a comparison that was abandoned."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    number: int


class CompareWeights(Effect, frozen=True, tag="compare"):
    """Have the engine compare every tensor it multiplies with to the trainer's `digests` (by name)."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    step: int
    number: int
    digests: dict[str, str]
