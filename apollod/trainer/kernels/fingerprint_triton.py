"""The sums of a fingerprint on a GPU, by Triton."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from apollod.trainer.kernels import kernels_cuda as k

TILE = 1024
PROGRAMS = 2048


def fingerprint_sums(words: Tensor) -> tuple[int, int]:
    """(S0, S1) modulo 2^64 of int32 words [n] on a GPU; see live_fingerprint.py. Waits for the device."""
    if not words.numel():
        return 0, 0
    tiles, programs = share_out(triton.cdiv(words.numel(), TILE), PROGRAMS)
    sums = torch.empty(2, programs, dtype=torch.int64, device=words.device)
    k.fingerprint_sums[(programs,)](words, sums, words.numel(), tiles * TILE, BLOCK=TILE)
    plain, weighted = sums.sum(1).tolist()
    return plain % (1 << 64), weighted % (1 << 64)


def share_out(tiles: int, programs: int) -> tuple[int, int]:
    """(tiles of one program, programs), at most about this many."""
    each = triton.cdiv(tiles, programs)
    return each, triton.cdiv(tiles, each)
