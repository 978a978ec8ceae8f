# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The sums of a fingerprint on a GPU, by Triton: of all tensors in one launch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

BLOCK = 1024
SEGMENT_WORDS = 1 << 18
"""most words of a program"""


def segments(tensors: Iterable[tuple[Tensor, int]]) -> Tensor:
    """The table for `queue_sum`, int64 [4, segments] in host memory: address, number of the first word in its tensor,
    words, factor. tensors: (int32 words [n] aligned to 16 bytes for wide loads, factor modulo 2^64)."""
    rows = [
        (words.data_ptr() + 4 * first, first, min(SEGMENT_WORDS, words.numel() - first), (factor ^ 1 << 63) - (1 << 63))
        for words, factor in tensors
        for first in range(0, words.numel(), SEGMENT_WORDS)
    ]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 4).t().contiguous()


def queue_sum(table: Tensor) -> Tensor:
    """sum over all tensors of factor * sum_j w_j (2j + 1) modulo 2^64, as int64 [] on the device. `table`: from
    `segments`, on the device; its tensors must stay alive. Does not wait."""
    count = table.shape[1]
    sums = torch.zeros(count, dtype=torch.int64, device=table.device)
    if count:
        weighted_words[(count,)](table, sums, BLOCK=BLOCK)
    return sums.sum()


@triton.jit
def weighted_words(table, sums, BLOCK: tl.constexpr):
    """grid [segments]: the sum of each segment, int64 [segments]. No atomics; integer sums have no order."""
    segment, segments = tl.program_id(0), tl.num_programs(0)
    words = tl.multiple_of(tl.load(table + segment).to(tl.pointer_type(tl.int32)), 16)
    first, count = tl.load(table + segments + segment), tl.load(table + 2 * segments + segment)
    total, whole = tl.zeros((BLOCK,), tl.int64), count // BLOCK * BLOCK
    for start in range(0, whole, BLOCK):  # without a mask, so that four words are loaded at once
        at = start + tl.arange(0, BLOCK)
        total += tl.load(words + at).to(tl.uint32, bitcast=True).to(tl.int64) * (2 * (first + at) + 1)
    at = whole + tl.arange(0, BLOCK)
    rest = tl.load(words + at, mask=at < count, other=0).to(tl.uint32, bitcast=True).to(tl.int64)
    total += rest * (2 * (first + at) + 1)
    tl.store(sums + segment, tl.sum(total, axis=0) * tl.load(table + 3 * segments + segment))
