"""One parameter in one step, for an optimizer's formulas: its moments in float32, and the rounded write."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apollod.trainer.kernels.passes import CompiledPasses, compiled_passes
from apollod.trainer.optim import projector
from apollod.trainer.optim.moments import load_moments, save_moments
from apollod.trainer.optim.projector import blocks, stream_key
from apollod.trainer.optim.rounding import kernel_options, write_rows_, write_update_
from apollod.trainer.undo.undo_ring import WRITE_BYTES, ParameterUndo


@dataclass(frozen=True)
class ParameterStep:
    """One parameter's share of a step, for an optimizer's formulas.

    number    of the step; keys the random streams
    t         updates of this parameter, this one included
    undo      records the writes, so that they can be undone
    """

    name: str
    group: Mapping[str, Any]
    weight: Tensor
    round_to: torch.dtype
    state: Mapping[str, Tensor]
    seed: int
    number: int
    t: int
    undo: ParameterUndo | None = None

    def moments(self, part: slice | None = None) -> dict[str, Tensor]:
        """State with float32 m and v: all of them, or flat the elements `part`. `keep` stores changes to them."""
        return load_moments(self.state, part)

    def keep(self, wide: Mapping[str, Tensor], part: slice | None = None) -> None:
        """Store the result of `moments`. bfloat16 moments are rounded stochastically, by streams of their own."""
        if self.state["m"].dtype == torch.float32:
            return  # they are the state itself
        keys = {name: stream_key(f"moment {name}", self.seed, self.name, self.number) for name in "mv"}
        save_moments(self.state, wide, part, keys)

    def one_call(self, gradient: Tensor) -> CompiledPasses | None:
        """The compiled passes that update this parameter from gradient to weight in one call, if it is bf16 on CPU with
        float32 moments, rounded when written; at most a working block, of whole words. Otherwise calls and torch
        operations on little memory would take most of the time. Same bits as the separate formulas, which handle all
        other cases."""
        weight, state = self.weight, self.state
        small = gradient.numel() <= projector.BLOCK_ELEMENTS and gradient.dim() and not gradient.shape[-1] % 2
        if not small or not weight.is_cpu or not weight.dtype == gradient.dtype == torch.bfloat16:
            return None
        if "master" in state or state["m"].dtype != torch.float32 or (weight.data_ptr() | gradient.data_ptr()) % 4:
            return None
        return compiled_passes()

    def write(self, update: Tensor, coef: Tensor | float, part: slice | None = None) -> None:
        """weight = round(weight (1 - lr weight_decay) + coef update); with `part`, for these elements and a flat
        update."""
        weight, master = self.weight, self.state.get("master")
        if part is not None:
            self._write(
                weight.view(-1)[part], None if master is None else master.view(-1)[part], update, coef, part.start
            )
        elif self.undo is None or not isinstance(coef, Tensor) or coef.dim() != 2:
            self._write(weight, master, update, coef, 0)
        else:
            width = weight.shape[1]
            # block by block: old and new values stay in the processor's caches; on a device, bounds its memory
            length = None if weight.is_cpu else WRITE_BYTES // weight.element_size()
            for block in blocks(weight.numel(), width, length):
                rows = slice(block.start // width, block.stop // width)
                scale = coef[rows] if coef.shape[1] == 1 else coef
                self._write(weight[rows], None if master is None else master[rows], update[rows], scale, block.start)

    def _write(self, weight: Tensor, master: Tensor | None, update: Tensor, coef: Tensor | float, first: int) -> None:
        """first: index of weight[0] in the parameter."""
        decay, key = self.decay, self.rounding_key
        if master is None:
            with self.kept(weight):
                write_update_(weight, update, coef, decay, key, self.group["rounding"], self.round_to, first)
            return
        with self.kept(weight, master):
            if self.t == 1:
                master.copy_(weight)
            write_update_(master, update, coef, decay, key, "nearest", torch.float32)
            weight.copy_(master if weight.dtype == self.round_to else master.to(self.round_to))

    @property
    def writes_all(self) -> bool:
        """True if rows without gradient have to be written, too: weights decay, or the master copy is initialised."""
        return self.decay != 1 or ("master" in self.state and self.t == 1)

    def write_rows(self, rows: Tensor, update: Tensor, coef: Tensor) -> None:
        """`write` for some rows of a bf16 matrix: int64 [k] ascending, update [k, n], coef float32 [k, 1]."""
        master = self.state.get("master")
        if master is None:
            with self._kept_rows(rows, self.weight):
                write_rows_(self.weight, rows, update, coef, self.decay, self.rounding_key, self.group["rounding"])
            return
        with self._kept_rows(rows, self.weight, master):
            wide = self.weight[rows].float() if self.t == 1 else master[rows]
            write_update_(wide, update, coef, self.decay, self.rounding_key, "nearest", torch.float32)
            master[rows] = wide
            self.weight[rows] = wide.to(self.weight.dtype)

    def kept(self, *targets: Tensor) -> AbstractContextManager[None]:
        """Context for all writes to these contiguous tensors, the weight or its master, which records them for undo."""
        return nullcontext() if self.undo is None else self.undo.writing(*targets)

    def _kept_rows(self, rows: Tensor, *targets: Tensor) -> AbstractContextManager[None]:
        return nullcontext() if self.undo is None else self.undo.writing_rows(rows, *targets)

    @property
    def decay(self) -> float:
        """The factor of the weight."""
        return 1 - float(self.group["lr"] * self.group["weight_decay"])

    @property
    def rounding_key(self) -> int:
        """Key of the write's noise."""
        return stream_key("rounding", self.seed, self.name, self.number)

    @property
    def rounding_options(self) -> tuple[float, int, int, bool]:
        """Decay, noise and rounding of the write, for compiled passes."""
        return kernel_options(self.decay, self.rounding_key, self.group["rounding"])
