"""Host memory that writing a checkpoint takes: a copy of everything where there is room, else pieces (no torch)."""

SPARE = 1.1
"""Memory that has to be available for the copy, in sizes of what is copied."""


def copied_bytes(weights: int, state: int) -> int:
    """Host memory that has to be available for a checkpoint beside which steps go on; `weights` in the dtypes of the
    files, `state` of the optimizer, bytes."""
    return int((weights + state) * SPARE)
