"""Host memory that writing a checkpoint takes: a copy of everything where there is room, else pieces (no torch)."""

SPARE = 1.1
"""Memory that has to be available for the copy, in sizes of what is copied."""

IN_PIECES_BYTES = 512 << 20
"""At most, whatever the model: parts of 16 MiB on their way into delta and files, and 192 MiB of the sync."""

_BLOCK = 4096  # of the model's files; each has 8 bytes in a table, of before and of after


def copied_bytes(weights: int, state: int) -> int:
    """Host memory that has to be available for a checkpoint beside which steps go on; `weights` in the dtypes of the
    files, `state` of the optimizer, bytes."""
    return int((weights + state) * SPARE)


def in_pieces_bytes(weights: int) -> int:
    """What one takes at most where there is less: steps wait until it is written then. Bytes."""
    return IN_PIECES_BYTES + 16 * (weights // _BLOCK)
