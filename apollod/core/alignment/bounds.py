"""How far engine and trainer may differ where nothing is wrong: rounding, which depends on the kind of model."""

from typing import Literal

ModelKind = Literal["dense", "hybrid"]
"""hybrid: some layers are recurrent (linear attention, state spaces, convolutions), and round along the whole text"""

BOUNDS: dict[ModelKind, float] = {"dense": 0.05, "hybrid": 0.125}
"""Mean absolute difference of log-probabilities in bf16, between vLLM's kernels and transformers': five to six times
what was seen on CPU with nothing wrong, 0.008 (dense, Qwen3-0.6B's dimensions) and 0.025 (hybrid)."""


def bound_of(kind: ModelKind, configured: float) -> float:
    """The mean above which weights count as not shared; `configured` 0: the one of this kind of model."""
    return configured or BOUNDS[kind]
