"""Gradients [m, n] that never exist whole: the few rows of an embedding that an example uses, or a head's rows as
products of factors.

Law of this file: a row has the bits of autograd's dense gradient, however it is requested and whichever rows come with
it (a product in bf16 of at least 64 rows gives a row the same bits on CPU; `tests/unit/trainer/test_loss.py` checks
that).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from apollod.trainer.optim.projector import BLOCK_ELEMENTS, blocks

BLOCK_ROWS = 4096
"""Rows of a block: bounds the temporaries; smaller matrices are not worth this."""


class RowGradient(ABC):
    """Gradient [m, n] of a parameter that returns its rows on request, any number of times, with the same bits."""

    def __init__(self, shape: torch.Size) -> None:
        self.shape = shape

    @abstractmethod
    def block(self, first: int, last: int) -> Tensor:
        """Rows first .. last-1: a new tensor [last - first, n]."""

    def add_to(self, total: Tensor, first: int) -> None:
        """total += rows first .. first + len(total) - 1, in place."""
        total.add_(self.block(first, first + len(total)))

    def every_block(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All rows: (their numbers int64 [k], gradient [k, n]) in order, at most BLOCK_ROWS at once."""
        for first in range(0, self.shape[0], BLOCK_ROWS):
            block = self.block(first, min(first + BLOCK_ROWS, self.shape[0]))
            yield torch.arange(first, first + block.shape[0], device=block.device), block

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Like `every_block`, without rows that are known to be zero."""
        return self.every_block()

    def dense(self) -> Tensor:
        """The dense gradient [m, n]."""
        blocks = self.every_block()
        rows, block = next(blocks)
        made = block.new_empty(self.shape)
        made[rows] = block
        for rows, block in blocks:
            made[rows] = block
        return made


def parts(gradient: Tensor | RowGradient, unit: int = 1) -> Iterator[tuple[slice, Tensor]]:
    """The whole gradient in the working blocks of `projector.blocks`, the same for a tensor and for rows: (elements,
    flat)."""
    if isinstance(gradient, Tensor):
        flat = gradient.view(-1)
        for part in blocks(flat.numel(), unit):
            yield part, flat[part]
        return
    wanted, left = blocks(gradient.shape.numel(), unit), torch.empty(0)
    length = max(1, BLOCK_ELEMENTS // unit) * unit
    for _, block in gradient.every_block():
        flat = torch.cat([left, block.view(-1)]) if left.numel() else block.view(-1)
        for at in range(0, flat.numel() - length + 1, length):
            yield next(wanted), flat[at : at + length]
        left = flat[flat.numel() // length * length :]
    if left.numel():
        yield next(wanted), left


class SparseRows(RowGradient):
    """rows  int64 [k], ascending, each once; values [k, n]. All other rows are zero. rows_here: `rows` in host memory,
    if they are on a device, so that it need not be waited for."""

    def __init__(self, shape: torch.Size, rows: Tensor, values: Tensor, rows_here: Tensor | None = None) -> None:
        super().__init__(shape)
        self._rows = rows
        self._values = values
        self._rows_here = rows.cpu() if rows_here is None else rows_here

    def block(self, first: int, last: int) -> Tensor:
        block = self._values.new_zeros(last - first, self.shape[1])
        begin, end = torch.searchsorted(self._rows_here, torch.tensor([first, last])).tolist()
        block[self._rows[begin:end] - first] = self._values[begin:end]
        return block

    def add_to(self, total: Tensor, first: int) -> None:
        """Adds the zeros of all other rows, too: they turn a -0 of the total into 0."""
        inside = (self._rows >= first) & (self._rows < first + len(total))
        rows = self._rows[inside] - first
        found = total[rows] + self._values[inside]
        total.add_(0.0)
        total[rows] = found

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        for first in range(0, len(self._rows), BLOCK_ROWS):
            yield self._rows[first : first + BLOCK_ROWS], self._values[first : first + BLOCK_ROWS]


class FactoredRows(RowGradient):
    """L' R. left  (first, last) -> columns first .. last-1 of L, [t, last - first]; right  R [t, n]."""

    def __init__(self, shape: torch.Size, left: Callable[[int, int], Tensor], right: Tensor) -> None:
        super().__init__(shape)
        self._left = left
        self._right = right

    def block(self, first: int, last: int) -> Tensor:
        return torch.mm(self._left(first, last).t(), self._right)


class RowSum(RowGradient):
    """The sum of gradients of one shape, in the given order and in their dtype, like autograd's."""

    def __init__(self, parts: Sequence[RowGradient]) -> None:
        super().__init__(parts[0].shape)
        self._parts = parts

    def block(self, first: int, last: int) -> Tensor:
        total = self._parts[0].block(first, last)
        for part in self._parts[1:]:
            part.add_to(total, first)
        return total


class RowSink(Protocol):
    """The receiver of row gradients, inside the backward pass."""

    def takes_rows(self, parameter: Tensor) -> bool:
        """True if this parameter's gradient may come as rows; if so, all of it has to."""

    def expect_rows(self, parameter: Tensor) -> None:
        """Announce, in a forward pass, one `deliver_rows` of the following backward pass."""

    def deliver_rows(self, parameter: Tensor, gradient: RowGradient) -> None:
        """Deliver one contribution to a parameter's gradient. The last announced one completes it."""


class Arrivals:
    """Row gradients by parameter, from the first contribution until the parameter is updated."""

    def __init__(self) -> None:
        self._missing: dict[Tensor, int] = {}
        self._arrived: dict[Tensor, list[RowGradient]] = {}  # of the running backward pass
        self._sums: dict[Tensor, list[RowGradient]] = {}  # sums of earlier ones

    def expect(self, parameter: Tensor) -> None:
        """Announce one more contribution."""
        self._missing[parameter] = self._missing.get(parameter, 0) + 1

    def add(self, parameter: Tensor, gradient: RowGradient) -> bool:
        """Take a contribution; true if it was the last one."""
        arrived = self._arrived.setdefault(parameter, [])
        arrived.append(gradient)
        self._missing[parameter] -= 1
        if self._missing[parameter]:
            return False
        self._sums.setdefault(parameter, []).append(_sum(self._arrived.pop(parameter)))
        return True

    def complete(self) -> list[Tensor]:
        """Parameters whose gradient is complete, for `take`."""
        return list(self._sums)

    def take(self, parameter: Tensor) -> RowGradient:
        """The sum over all backward passes since the last `take`."""
        return _sum(self._sums.pop(parameter))

    def clear(self) -> None:
        """Drop everything: no step was made of it."""
        for held in (self._missing, self._arrived, self._sums):
            held.clear()


def _sum(parts: list[RowGradient]) -> RowGradient:
    return parts[0] if len(parts) == 1 else RowSum(parts)
