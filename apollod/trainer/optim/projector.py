"""Counter-based random bits, the random projection of a gradient, and its channel norms.

Law of this file: every random number is a pure function of (purpose, run seed, Hugging Face name, counter, index),
in integer arithmetic that wraps alike on every device. Nothing is drawn from a generator and nothing is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from apollod.trainer.kernels.passes import compiled_passes

BLOCK_ELEMENTS = 1 << 18  # elements of a working block: bounds every temporary, never changes a result

_GEMM_ROWS = 64  # least rows of a product for which the bits of a row do not depend on their number
_PROJECTION_BLOCK_ELEMENTS = 1 << 21  # fixed: it decides the order of the sums in a left projection


def blocks(size: int, unit: int = 1, most: int | None = None) -> Iterator[slice]:
    """`size` elements in working blocks of a multiple of `unit` (a row, say), of `most` or BLOCK_ELEMENTS elements."""
    length = max(1, (most or BLOCK_ELEMENTS) // unit) * unit
    for first in range(0, size, length):
        yield slice(first, min(first + length, size))


def stream_key(purpose: str, seed: int, name: str, counter: int) -> int:
    """64-bit key of one random stream. `purpose` keeps rounding and projection apart."""
    text = f"{purpose}:{seed}:{counter}:{name}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _int32(value: int) -> int:
    """The low 32 bits of `value` as a signed integer, for torch scalars."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def random_words(key: int, first: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Words first .. first+count-1 of the stream `key`: int32 [count], 32 random bits each.

    A Weyl sequence keyed by both halves of `key`, through the `lowbias32` finaliser (C. Wellons, 2018).
    """
    x = torch.arange(count, dtype=torch.int32, device=device).add_(_int32(first))
    x.mul_(_int32(0x9E3779B1)).add_(_int32(key)).bitwise_xor_(_int32(key >> 32))
    for shift, multiplier in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x.bitwise_xor_((x >> shift).bitwise_and_((1 << (32 - shift)) - 1))  # int32 has no logical shift
        x.mul_(_int32(multiplier))
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def signs(key: int, rows: int, rank: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Rademacher matrix [rows, rank] of +1 and -1: entry (i, j) is -1 where bit i*rank+j of the stream is set."""
    if dtype == torch.bfloat16 and torch.device(device).type == "cpu":
        compiled = compiled_passes()
        if compiled:
            matrix = torch.empty(rows, rank, dtype=dtype)
            compiled.signs(matrix.data_ptr(), rows * rank, key & 0xFFFFFFFF, key >> 32)
            return matrix
    return _signs_reference(key, rows, rank, dtype, device)


def _signs_reference(key: int, rows: int, rank: int, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    words = random_words(key, 0, (rows * rank + 31) // 32, device)
    to_sign_bit = torch.arange(31, -1, -1, dtype=torch.int32, device=device)
    bits = (words.unsqueeze(1) << to_sign_bit).bitwise_and_(-0x80000000)
    ones = bits.bitwise_or_(0x3F800000).view(torch.float32)  # the bits of 1.0 below the sign
    return ones.flatten()[: rows * rank].view(rows, rank).to(dtype)


def summed_dim(weight: Tensor, rank: int) -> int | None:
    """The dimension inside a channel, which is the smaller one and gets projected: 1 = rows are channels, 0 = columns
    are. None for Adam's parameters: not 2-D, or a smaller side below the rank."""
    if weight.dim() != 2 or min(weight.shape) < rank:
        return None
    return 1 if weight.shape[0] >= weight.shape[1] else 0


def project(gradient: Tensor, key: int, rank: int) -> Tensor:
    """Low-rank gradient: its smaller side projected by P [min(m, n), rank] with entries +-1/sqrt(rank).

    gradient [m, n] bf16 or float32. Returns float32 G P [m, rank] where m >= n, else P' G [rank, n]
    (arXiv:2412.05270, algorithm 1). The product is taken with +-1, exact in any dtype, and scaled in float32.
    A bf16 product accumulates in float32 and is rounded once per block: 0.2 % an entry, where the projection itself
    has a standard error of 1/sqrt(rank), 12 % at rank 64.
    """
    return unscaled(gradient, key, rank).float().mul_(rank**-0.5)


def unscaled(gradient: Tensor, key: int, rank: int) -> Tensor:
    """`project` before scaling: in the gradient's dtype if it is one product, else float32. Contiguous."""
    m, n = gradient.shape
    if m >= n:
        return _unscaled_rows(gradient, key, rank)
    basis = signs(key, m, rank, gradient.dtype, gradient.device)
    # In blocks of rows: oneDNN repacks the right operand, which would be a temporary as large as the gradient.
    block = max(1, _PROJECTION_BLOCK_ELEMENTS // n)
    low_rank = torch.mm(basis[:block].t(), gradient[:block])
    for rows in range(block, m, block):
        part = slice(rows, rows + block)
        low_rank = low_rank.float().add_(torch.mm(basis[part].t(), gradient[part]))
    return low_rank


def project_rows(rows: Tensor, key: int, rank: int) -> Tensor:
    """G P of all or some rows [k, n] of a gradient whose rows are channels: float32 [k, rank]."""
    return _unscaled_rows(rows, key, rank).float().mul_(rank**-0.5)


def _unscaled_rows(rows: Tensor, key: int, rank: int) -> Tensor:
    """G P of some rows, padded to 64, since products of fewer rows may be summed in another order."""
    count, width = rows.shape
    basis = signs(key, width, rank, rows.dtype, rows.device)
    if count < _GEMM_ROWS:
        rows = torch.cat([rows, rows.new_zeros(_GEMM_ROWS - count, width)])
    return torch.mm(rows, basis)[:count]


def as_words(tensor: Tensor) -> np.ndarray | None:
    """A contiguous bf16 CPU tensor [..., n] as uint32 [..., n/2] on the same memory; None if that is impossible."""
    if not tensor.is_cpu or tensor.dtype != torch.bfloat16 or tensor.dim() == 0 or tensor.shape[-1] % 2:
        return None
    return tensor.view(torch.int16).numpy().view(np.uint32)


def square_norms(gradient: Tensor, dim: int) -> Tensor:
    """Squared channel norms, summed over `dim`: gradient [m, n] -> float64 [m] (dim 1) or [n] (dim 0), no full-size
    temporary. float64, so that the order of the sums does not affect the float32 result."""
    if as_words(gradient) is not None and compiled_passes():
        return square_norms_of([gradient], dim)[0]
    m, n = gradient.shape
    return square_norms_of((gradient[part.start // n : part.stop // n] for part in blocks(m * n, max(1, n))), dim)[0]


def square_norms_of(pieces: Iterable[Tensor], *dims: int) -> list[Tensor]:
    """`square_norms` over each of `dims` of a matrix that comes in pieces of its rows, in order."""
    sums = [_Squares(dim) for dim in dims]
    for piece in pieces:
        for one in sums:
            one.add(piece)
    return [one.total() for one in sums]


class _Squares:
    """Running squared norms over one dimension. The compiled sums do not depend on where a matrix is cut."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._parts: list[Tensor] = []
        self._pairs: np.ndarray | None = None  # of even and odd columns

    def add(self, piece: Tensor) -> None:
        words, compiled = as_words(piece), compiled_passes()
        if words is None or compiled is None:
            self._parts.append(piece.double().square_().sum(self._dim))
        elif self._dim == 1:
            out = np.zeros(len(words))
            compiled.row_square_norms(words, out)
            self._parts.append(torch.from_numpy(out))
        else:
            self._pairs = np.zeros((2, words.shape[1])) if self._pairs is None else self._pairs
            compiled.column_square_norms(words, self._pairs)

    def total(self) -> Tensor:
        if self._pairs is not None:
            return torch.from_numpy(self._pairs.T.reshape(-1))
        return torch.cat(self._parts) if self._dim == 1 else torch.stack(self._parts).sum(0)
