"""Compiled passes over CPU memory, if numba is installed: kernels_cpu.py, undo_kernels.py.

Each gives the bits of plain torch operations, which define the value and are used without numba, on other devices and
for memory that a pass cannot read. In memory a bf16 pair is a uint32 word; keys come in halves.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol, cast

UNDO_BLOCK = 512
"""elements of a block of undo records, two bits each"""
UNDO_LANES = 64
"""code words (16 bits, 8 elements) of such a block: whole vector registers"""


class CompiledPasses(Protocol):
    """The functions of kernels_cpu.py. Beside each: its definition in torch."""

    AVAILABLE: bool
    signs: Any  # projector.signs
    row_square_norms: Any  # projector.square_norms
    column_square_norms: Any
    square_sum: Any  # moments.square_norm
    adam: Any  # adamw.adam_
    apollo: Any  # apollo.channel_rates_
    write_rows: Any  # rounding.write_reference_
    write_columns: Any
    write_elements: Any
    write_floats: Any
    adam_step: Any  # adamw.adam_update
    apollo_step: Any  # apollo.update_matrix
    fingerprint_sums: Any  # store.fingerprint.sums
    fingerprint_sums_at: Any


def compiled_passes() -> CompiledPasses | None:
    """The passes; None without numba, which is imported on first use: it takes most of a second."""
    passes = _passes()
    return passes if passes.AVAILABLE else None


@cache
def _passes() -> CompiledPasses:
    from apollod.trainer.kernels import kernels_cpu

    return cast(CompiledPasses, kernels_cpu)
