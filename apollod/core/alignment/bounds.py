"""Bounds on the difference between engine and trainer, from the kind of model and its earlier comparisons. Pure.

Log-probabilities tell how far two programs differ, not whether they read the same weights: digests of the tensors tell
that. So a difference first has every tensor compared, and only one that no rounding makes halts training without a
tensor that differs. Figures: docs/benchmarks/2026-11-23-alignment.md.
"""

import statistics
from collections.abc import Sequence
from typing import Literal

ModelKind = Literal["dense", "hybrid"]
"""hybrid: some layers are recurrent (linear attention, state spaces, convolutions), and round along the whole text"""

CEILINGS: dict[ModelKind, float] = {"dense": 0.15, "hybrid": 0.375}
"""Mean absolute difference of log-probabilities over the built-in text, in nats; only bugs in a model's code were seen
to exceed it. A real dense model gives 0.055 when correct and 0.19 with a wrong attention scale in one of 30 layers. No
real hybrid was measured; random hybrids give 2.5 to 3 times the mean of dense ones."""
NOTHING: dict[ModelKind, float] = {"dense": 0.05, "hybrid": 0.125}
"""Training never halts at a mean up to this one, however small earlier means were. A comparison over a few tokens that
exceeds it triggers a comparison of the whole text and of every tensor before the next step."""
JUMP = 4.0
"""times the usual mean: training halts above it"""
NOTICED = 1.5
"""times the usual mean: every tensor is compared above it"""
REMEMBERED = 16
"""earlier comparisons, whose median is the usual mean"""


def usual_of(past: Sequence[float]) -> float:
    """The mean difference to expect of this model; 0 while none was measured."""
    return statistics.median(past) if past else 0.0


def bound_of(kind: ModelKind, configured: float, usual: float = 0.0) -> float:
    """The mean above which training halts, whatever the tensors are; `configured`: `[trainer] align_max`, 0 for the
    bound that follows from the kind of model and from its `usual` mean."""
    if configured:
        return configured
    ceiling = CEILINGS[kind]
    return min(ceiling, max(NOTHING[kind], JUMP * usual)) if usual else ceiling


def noticed(mean: float, usual: float, least: float = 0.0) -> bool:
    """True if this mean exceeds the usual one, and `least`, by enough to compare the tensors."""
    expected = max(least, usual * NOTICED)
    return 0.0 < expected < mean
