"""APOLLO's updates on a GPU, queued without waiting for it: which kernel runs on which part of a parameter.

Every size follows from the shape of the parameter alone, never from the device or from a measurement, since sizes
decide the order of sums: the same step gives the same bits on every GPU of a kind. What a step did is read once, at
its end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from apollod.trainer.kernels import kernels_cuda as k
from apollod.trainer.kernels.fingerprint_triton import share_out
from apollod.trainer.optim.backends.backend import Groups
from apollod.trainer.optim.limiter import FALL
from apollod.trainer.optim.moments import Norms
from apollod.trainer.optim.optimizer_errors import OptimizerError
from apollod.trainer.optim.projector import stream_key, summed_dim
from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.optim.step_account import NamedParameter, StepAccount, StepReport, dense
from apollod.trainer.undo.undo_ring import UndoRing

RESULT = 8  # float64 values a parameter: see kernels_cuda.py

BLOCK_C, BLOCK_K = 64, 64  # kernel 1: channels of a program, elements of the inner side at once
PROGRAMS_WANTED = 256  # kernel 1: below it the inner side is split, two programs for each multiprocessor of a large GPU
SPLIT_MIN = 256  # elements of the inner side: a split costs rank values written and read for each channel
STATE_TILE = 2048  # kernel 2: moments at once
STATE_PROGRAMS = 512  # kernel 2 and Adam's: what each program of the next kernel has to add up
WRITE_TILE = (16, 256)  # kernel 3: rows and columns (words of two elements, where it can) at once
WRITE_PROGRAMS = 2048
ADAM_TILE = 1024

_ROUNDINGS = {"nearest": k.NEAREST, "master": k.NEAREST, "stochastic": k.STOCHASTIC}
_INTERPRETED = not isinstance(k.project, triton.runtime.JITFunction)


@dataclass(frozen=True)
class Update:
    """One parameter's share of a step. `summed` as `projector.summed_dim`; state as `Apollo` documents it, all on one
    device."""

    name: str
    weight: Tensor
    gradient: Tensor
    state: Mapping[str, Tensor]
    group: Mapping[str, Any]
    round_to: torch.dtype
    seed: int
    number: int
    summed: int | None

    def key(self, purpose: str, counter: int | None = None) -> tuple[int, int]:
        """Both halves of a stream's key, as the signed integers that kernels are given."""
        key = stream_key(purpose, self.seed, self.name, self.number if counter is None else counter)
        return _signed(key & 0xFFFFFFFF), _signed(key >> 32)

    def rounding(self) -> Any:
        """Kernel constant of the write."""
        return k.NONE if self.round_to == torch.float32 else _ROUNDINGS[self.group["rounding"]]


class TritonBackend:
    """See `Backend`. Raises OptimizerError where Triton has no kernels for the device."""

    takes_rows = False  # the kernels want a gradient whole

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda" and not _INTERPRETED:
            raise OptimizerError(f"Triton has no kernels for {device}", 'choose kernels = "eager"')
        self._device = device

    def open(self, step: int, seed: int, parameters: Collection[NamedParameter], groups: Groups) -> DeviceStep:
        return DeviceStep(step, seed, parameters, groups, self._device)


class DeviceStep(StepAccount):
    """An open step whose account is on the device; only its report waits for that."""

    def __init__(
        self, step: int, seed: int, parameters: Collection[NamedParameter], groups: Groups, device: torch.device
    ) -> None:
        super().__init__(step, seed)
        self._rows = {parameter.name: row for row, parameter in enumerate(parameters)}
        self._results = torch.zeros(len(self._rows), RESULT, dtype=torch.float64, device=device)
        self._scalars = {
            id(group): _to_device(torch.tensor(_scalars(group), dtype=torch.float64), device) for group in groups
        }

    def update(
        self,
        parameter: NamedParameter,
        weight: Tensor,
        gradient: Tensor | RowGradient,
        state: Mapping[str, Tensor],
        ring: UndoRing | None,
    ) -> None:
        """See `OpenStep`: queue one parameter's kernels on the current stream. `ring` keeps what they change, which
        may be nothing: that is not known yet."""
        assert isinstance(gradient, Tensor)
        name, group = parameter.name, parameter.group
        self.take(name)
        gradient = dense(name, gradient)
        summed = summed_dim(gradient, group["rank"])
        update = Update(name, weight, gradient, state, group, parameter.round_to, self.seed, self.step, summed)
        queue = _adam if summed is None else _apollo
        operands = (update, self._scalars[id(group)], self._results[self._rows[name]])
        if ring is None or not ring.recording:
            queue(*operands)
            return
        undo, master = ring.parameter(state), state.get("master")
        with undo.writing(weight, *(() if master is None else (master,))):
            queue(*operands)
        ring.add(undo)

    def report(self) -> StepReport:
        """As `StepAccount.report`, of what the kernels noted. Waits for the device."""
        rows = self._results.tolist()
        for name in self.fired:
            self.note(name, Norms(*rows[self._rows[name]][:2]))
        return super().report()


def _scalars(group: Mapping[str, Any]) -> list[float]:
    (b1, b2), lr = group["betas"], group["lr"]
    logs = [math.log(beta) if beta > 0 else -math.inf for beta in (b1, b2)]
    decay, fall = 1 - lr * group["weight_decay"], FALL[group["limiter_rule"]]
    return [b1, 1 - b1, b2, 1 - b2, group["eps"], lr, decay, group["gamma"], *logs, fall]


def _to_device(values: Tensor, device: torch.device) -> Tensor:
    """A copy that nobody waits for: from pinned memory, which torch keeps until it is done."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values


def _apollo(step: Update, scalars: Tensor, result: Tensor) -> None:
    gradient, state, group = step.gradient, step.state, step.group
    (rows, columns), by_row, rank = gradient.shape, step.summed == 1, group["rank"]
    channels, inner = (rows, columns) if by_row else (columns, rows)
    strides, one_scale = ((columns, 1) if by_row else (1, columns)), group["scale"] == "tensor"
    rank_block = max(16, triton.next_power_of_2(rank))  # a matrix product needs 16

    blocks = triton.cdiv(channels, BLOCK_C)
    splits = min(triton.cdiv(PROGRAMS_WANTED, blocks), triton.cdiv(inner, SPLIT_MIN))
    length = triton.cdiv(triton.cdiv(inner, splits), BLOCK_K) * BLOCK_K
    splits = triton.cdiv(inner, length)
    low_rank = torch.empty(splits, channels, rank, dtype=torch.float32, device=gradient.device)
    squares, totals, scales = (_doubles(gradient, n) for n in (splits * channels, splits * blocks, channels))
    k.project[(blocks, splits)](
        gradient, low_rank, squares, totals, channels, inner, *strides, length,
        *step.key("projection", step.number // group["gap"]),
        RANK=rank, RANK_BLOCK=rank_block, BLOCK_C=BLOCK_C, BLOCK_K=BLOCK_K, OPERAND=_operand(gradient),
        num_warps=4, num_stages=3, **k.UNFUSED,
    )  # fmt: skip

    tile = max(1, STATE_TILE // rank_block)
    tiles, programs = share_out(triton.cdiv(channels, tile), STATE_PROGRAMS)
    partials = _doubles(gradient, 2 * programs)
    k.moments[(programs,)](
        low_rank, squares, totals, state["m"], state["v"], state["norm"], state["t"], scalars, scales, partials, result,
        channels, inner, splits * blocks, splits, tiles, *((rank, 1) if by_row else (1, columns)), rank**-0.5,
        *step.key("moment m"), *step.key("moment v"), RANK=rank, RANK_BLOCK=rank_block, BLOCK_C=tile,
        ONE_SCALE=one_scale,
        num_warps=4, **k.UNFUSED,
    )  # fmt: skip
    _write(step, scales, partials, programs, scalars, result, by_row, one_scale)


def _write(
    step: Update,
    scales: Tensor,
    partials: Tensor,
    partial_count: int,
    scalars: Tensor,
    result: Tensor,
    by_row: bool,
    one_scale: bool,
) -> None:
    weight, gradient, (rows, columns) = step.weight, step.gradient, step.weight.shape
    master = step.state.get("master")
    bf16 = all(tensor.dtype == torch.bfloat16 for tensor in (weight, gradient))
    aligned = columns % 2 == 0 and weight.data_ptr() % 4 == 0 and gradient.data_ptr() % 4 == 0
    words = bf16 and master is None and aligned
    if words:
        weight, gradient, columns = _words(weight), _words(gradient), columns // 2
    height, width = WRITE_TILE
    across = triton.cdiv(columns, width)
    count = triton.cdiv(rows, height) * across
    tiles, programs = share_out(count, WRITE_PROGRAMS)
    k.write[(programs,)](
        weight, weight if master is None else master, gradient, scales, partials, step.state["norm"], step.state["t"],
        scalars, result,
        rows, columns, across, count, tiles, partial_count, *step.key("rounding"), BY_ROW=by_row, ONE_SCALE=one_scale,
        WORDS=words,
        ROUND=step.rounding(), MASTER=master is not None, BLOCK_M=height, BLOCK_N=width, num_warps=8, **k.UNFUSED,
    )  # fmt: skip


def _adam(step: Update, scalars: Tensor, result: Tensor) -> None:
    weight, gradient, state = step.weight.view(-1), step.gradient.view(-1), step.state
    size, master = gradient.numel(), state.get("master")
    tiles, programs = share_out(triton.cdiv(size, ADAM_TILE), STATE_PROGRAMS)
    totals, partials, length = _doubles(gradient, programs), _doubles(gradient, programs), tiles * ADAM_TILE
    k.square_sums[(programs,)](gradient, totals, size, length, BLOCK=ADAM_TILE, **k.UNFUSED)
    k.adam[(programs,)](
        weight, weight if master is None else master, gradient, state["m"], state["v"], state["t"], totals, partials,
        scalars, size, length,
        *step.key("rounding"), *step.key("moment m"), *step.key("moment v"),
        ROUND=step.rounding(), MASTER=master is not None, BLOCK=ADAM_TILE, **k.UNFUSED,
    )  # fmt: skip
    k.close_adam[(1,)](state["t"], totals, partials, scalars, result, programs, **k.UNFUSED)


def _doubles(like: Tensor, size: int) -> Tensor:
    return torch.empty(size, dtype=torch.float64, device=like.device)


def _words(tensor: Tensor) -> Tensor:
    """Contiguous bf16 [rows, columns] as int32 words [rows, columns / 2] on the same memory, wherever its storage
    begins."""
    return tensor.view(-1).view(torch.int32).view(tensor.shape[0], -1)


def _operand(gradient: Tensor) -> Any:
    """What the product is taken in. A sign times a bf16 value is exact in both; Triton's interpreter multiplies bf16
    as integers."""
    return tl.bfloat16 if gradient.dtype == torch.bfloat16 and not _INTERPRETED else tl.float32


def _signed(half: int) -> int:
    return (half ^ 0x80000000) - 0x80000000
