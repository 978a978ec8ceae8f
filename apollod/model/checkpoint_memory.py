"""Host memory for writing a checkpoint: a copy of everything if there is room, else pieces (no torch)."""

SPARE = 1.1
"""Memory that has to be available for the copy, as a factor of its size."""


def copied_bytes(weights: int, state: int) -> int:
    """Host memory that has to be available for a checkpoint while steps go on; `weights` in the dtypes of the files,
    `state` of the optimizer, bytes."""
    return int((weights + state) * SPARE)
