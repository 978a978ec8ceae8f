"""APOLLO's updates on a GPU, queued without waiting for it: launches the kernels on the parts of a parameter.

Every size follows from the shape of the parameter alone, never from the device or from a measurement, since sizes
decide the order of sums: the same step gives the same bits on every GPU of a kind. The results of a step are read once,
at its end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from apollod.trainer.kernels import kernels_cuda as k
from apollod.trainer.optim.moments import FALL, Norms
from apollod.trainer.optim.open_step import (
    Backend,
    Groups,
    NamedParameter,
    OptimizerError,
    StepAccount,
    StepReport,
    dense,
)
from apollod.trainer.optim.projector import stream_key, summed_dim
from apollod.trainer.optim.row_gradient import BLOCK_ROWS, RowGradient
from apollod.trainer.undo.undo_ring import WRITE_BYTES, ParameterUndo, UndoRing

RESULT = 8  # float64 values a parameter: see kernels_cuda.py

BLOCK_C, BLOCK_K = 64, 64  # kernel 1: channels of a program, elements of the inner side at once
PROGRAMS_WANTED = 256  # kernel 1: below it the inner side is split, two programs for each multiprocessor of a large GPU
SPLIT_MIN = 256  # elements of the inner side: a split costs rank values written and read for each channel
STATE_TILE = 2048  # kernel 2: moments at once
STATE_PROGRAMS = 512  # kernel 2 and Adam's: partial sums that each program of the next kernel adds up
WRITE_TILE = (16, 256)  # kernel 3: rows and columns (words of two elements, where it can) at once
WRITE_PROGRAMS = 2048
ADAM_TILE = 1024

_ROUNDINGS = {"nearest": k.NEAREST, "master": k.NEAREST, "stochastic": k.STOCHASTIC}
_INTERPRETED = not isinstance(k.project, triton.runtime.JITFunction)


@dataclass(frozen=True)
class Update:
    """One parameter's share of a step. `summed`: see `projector.summed_dim`; state as `Apollo` documents it, all on one
    device. `undo`: records the writes."""

    name: str
    weight: Tensor
    gradient: Tensor | RowGradient
    state: Mapping[str, Tensor]
    group: Mapping[str, Any]
    round_to: torch.dtype
    seed: int
    number: int
    summed: int | None
    undo: ParameterUndo | None = None

    def key(self, purpose: str, counter: int | None = None) -> tuple[int, int]:
        """Both halves of a stream's key, as signed integers for the kernels."""
        key = stream_key(purpose, self.seed, self.name, self.number if counter is None else counter)
        return _signed(key & 0xFFFFFFFF), _signed(key >> 32)

    def rounding(self) -> Any:
        """Kernel constant of the write."""
        return k.NONE if self.round_to == torch.float32 else _ROUNDINGS[self.group["rounding"]]

    def kept(self, rows: Tensor | slice | None = None) -> AbstractContextManager[None]:
        """Context for all writes to weight and master, or to these rows of them, which records them for undo."""
        if self.undo is None:
            return nullcontext()
        master = self.state.get("master")
        targets = [self.weight] if master is None else [self.weight, master]
        if isinstance(rows, Tensor):
            return self.undo.writing_rows(rows, *targets)
        return self.undo.writing(*(target if rows is None else target[rows] for target in targets))


def device_steps(device: torch.device) -> Backend:
    """The back end of a device. Raises OptimizerError if Triton has no kernels for it."""
    if device.type != "cuda" and not _INTERPRETED:
        raise OptimizerError(f"Triton has no kernels for {device}", 'choose kernels = "eager"')
    return partial(DeviceStep, device=device)


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
        """See `OpenStep`: queue one parameter's kernels on the current stream. `ring` records the changes; it is not
        known yet if there are any."""
        name, group = parameter.name, parameter.group
        self.take(name)
        gradient = dense(name, gradient) if isinstance(gradient, Tensor) else gradient
        undo = ring.parameter(state) if ring is not None and ring.recording else None
        update = Update(
            name, weight, gradient, state, group, parameter.round_to, self.seed, self.step,
            summed_dim(weight, group["rank"]), undo,
        )  # fmt: skip
        queue = _adam if update.summed is None else _apollo
        queue(update, self._scalars[id(group)], self._results[self._rows[name]])
        if ring is not None and undo is not None:
            ring.add(undo)

    def report(self) -> StepReport:
        """See `StepAccount.report`; reads the kernels' results. Waits for the device."""
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
    """Copy without waiting: from pinned memory, which torch keeps until the copy is complete."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values


def _apollo(step: Update, scalars: Tensor, result: Tensor) -> None:
    """All three kernels. A gradient in rows is read twice: to project it, and, once moments and limiter are known, to
    write."""
    state, group = step.state, step.group
    (rows, columns), by_row, rank = step.weight.shape, step.summed == 1, group["rank"]
    channels, inner = (rows, columns) if by_row else (columns, rows)
    rank_block = max(16, triton.next_power_of_2(rank))  # a matrix product needs 16
    low_rank, squares, totals = _project(step, channels, inner, rank_block)

    tile = max(1, STATE_TILE // rank_block)
    tiles, programs = share_out(triton.cdiv(channels, tile), STATE_PROGRAMS)
    partials, scales = _doubles(step.weight, 2 * programs), _doubles(step.weight, channels)
    one_scale = group["scale"] == "tensor"
    k.moments[(programs,)](
        low_rank, squares, totals, state["m"], state["v"], state["norm"], state["t"], scalars, scales, partials, result,
        channels, inner, totals.numel(), len(low_rank), tiles, *((rank, 1) if by_row else (1, columns)), rank**-0.5,
        *step.key("moment m"), *step.key("moment v"), RANK=rank, RANK_BLOCK=rank_block, BLOCK_C=tile,
        ONE_SCALE=one_scale,
        num_warps=4, **k.UNFUSED,
    )  # fmt: skip
    del low_rank
    _write(step, scales, partials, programs, scalars, result, by_row, one_scale)


def _project(step: Update, channels: int, inner: int, rank_block: int) -> tuple[Tensor, Tensor, Tensor]:
    """R [splits, channels, rank], |G_c|^2 [splits, channels] and sums of blocks of them, of any shape. A channel is
    summed in the same order, whether the gradient is whole or comes in rows."""
    gradient, rank, device = step.gradient, step.group["rank"], step.weight.device
    blocks = triton.cdiv(channels, BLOCK_C)
    splits = min(triton.cdiv(PROGRAMS_WANTED, blocks), triton.cdiv(inner, SPLIT_MIN))
    length = triton.cdiv(triton.cdiv(inner, splits), BLOCK_K) * BLOCK_K
    splits = triton.cdiv(inner, length)
    whole = isinstance(gradient, Tensor) and gradient.shape == step.weight.shape
    new = torch.empty if whole else torch.zeros  # missing rows are zero
    low_rank = new(splits, channels, rank, dtype=torch.float32, device=device)
    squares = new(splits, channels, dtype=torch.float64, device=device)

    def launch(values: Tensor, rows: Tensor | None, totals: Tensor) -> None:
        count, depth = values.shape if step.summed == 1 else (values.shape[1], values.shape[0])
        strides = (values.shape[1], 1) if step.summed == 1 else (1, values.shape[1])
        k.project[(triton.cdiv(count, BLOCK_C), splits)](
            values, low_rank, squares, totals, values if rows is None else rows, count, channels, depth, *strides,
            length, *step.key("projection", step.number // step.group["gap"]),
            RANK=rank, RANK_BLOCK=rank_block, BLOCK_C=BLOCK_C, BLOCK_K=BLOCK_K, OPERAND=_operand(values),
            INDEXED=rows is not None, num_warps=4, num_stages=3, **k.UNFUSED,
        )  # fmt: skip

    if isinstance(gradient, Tensor):
        totals = new(1, splits * blocks, dtype=torch.float64, device=device)
        launch(gradient, None, totals[0])
        return low_rank, squares, totals
    width = splits * triton.cdiv(BLOCK_ROWS, BLOCK_C)
    totals = new(triton.cdiv(channels, BLOCK_ROWS), width, dtype=torch.float64, device=device)
    for number, (rows, values) in enumerate(gradient.blocks()):
        launch(values, rows, totals[number])
    return low_rank, squares, totals


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
    """Write in one launch; in several if the gradient comes in rows, or if writes are recorded: then at most one
    block's old values wait on the device."""
    norms = (step.state["norm"], step.state["t"], scalars, result)
    closed = False
    for values, rows, closed in _written(step):
        with step.kept(rows):
            _write_rows(step, values, rows, scales, partials, norms, partial_count, by_row, one_scale, closed)
    if not closed:
        k.close[(1,)](partials, *norms, partial_count, ONE_SCALE=one_scale, **k.UNFUSED)


def _written(step: Update) -> Iterator[tuple[Tensor, Tensor | slice, bool]]:
    """(gradient, its rows, true if these are all) for all rows to write. Rows without a gradient are included if
    weights decay, or if the master copy may have to be initialised."""
    gradient, decay = step.gradient, 1 - step.group["lr"] * step.group["weight_decay"]
    if isinstance(gradient, RowGradient):
        for numbers, values in gradient.every_block() if decay != 1 or "master" in step.state else gradient.blocks():
            yield values, numbers, False
        return
    count, height = len(gradient), WRITE_TILE[0]
    block = count
    if step.undo is not None:
        block = max(height, WRITE_BYTES // gradient[:1].nbytes // height * height)
    for first in range(0, count, block):
        rows = slice(first, min(first + block, count))
        yield gradient[rows], rows, block >= count


def _write_rows(
    step: Update,
    gradient: Tensor,
    numbers: Tensor | slice,
    scales: Tensor,
    partials: Tensor,
    norms: tuple[Tensor, Tensor, Tensor, Tensor],
    partial_count: int,
    by_row: bool,
    one_scale: bool,
    last: bool,
) -> None:
    weight, (rows, columns), master = step.weight, gradient.shape, step.state.get("master")
    bf16 = all(tensor.dtype == torch.bfloat16 for tensor in (weight, gradient))
    aligned = columns % 2 == 0 and weight.data_ptr() % 4 == 0 and gradient.data_ptr() % 4 == 0
    words = bf16 and master is None and aligned
    if words:
        weight, gradient, columns = _words(weight), _words(gradient), columns // 2
    height, width = WRITE_TILE
    across = triton.cdiv(columns, width)
    count = triton.cdiv(rows, height) * across
    tiles, programs = share_out(count, WRITE_PROGRAMS)
    indexed, first = (True, 0) if isinstance(numbers, Tensor) else (False, numbers.start)
    k.write[(programs,)](
        weight, weight if master is None else master, gradient, scales, partials, *norms,
        numbers if indexed else gradient, rows, first, columns, across, count, tiles, partial_count, int(last),
        *step.key("rounding"), BY_ROW=by_row, ONE_SCALE=one_scale, WORDS=words, ROUND=step.rounding(),
        MASTER=master is not None, INDEXED=indexed, BLOCK_M=height, BLOCK_N=width, num_warps=8, **k.UNFUSED,
    )  # fmt: skip


def _adam(step: Update, scalars: Tensor, result: Tensor) -> None:
    assert isinstance(step.gradient, Tensor)
    weight, gradient, state = step.weight.view(-1), step.gradient.view(-1), step.state
    size, master = gradient.numel(), state.get("master")
    tiles, programs = share_out(triton.cdiv(size, ADAM_TILE), STATE_PROGRAMS)
    totals, partials, length = _doubles(gradient, programs), _doubles(gradient, programs), tiles * ADAM_TILE
    k.square_sums[(programs,)](gradient, totals, size, length, BLOCK=ADAM_TILE, **k.UNFUSED)
    with step.kept():
        k.adam[(programs,)](
            weight, weight if master is None else master, gradient, state["m"], state["v"], state["t"], totals,
            partials, scalars, size, length,
            *step.key("rounding"), *step.key("moment m"), *step.key("moment v"),
            ROUND=step.rounding(), MASTER=master is not None, BLOCK=ADAM_TILE, **k.UNFUSED,
        )  # fmt: skip
    k.close_adam[(1,)](state["t"], totals, partials, scalars, result, programs, **k.UNFUSED)


def share_out(tiles: int, programs: int) -> tuple[int, int]:
    """(tiles per program, programs), with at most about this many programs."""
    each = triton.cdiv(tiles, programs)
    return each, triton.cdiv(tiles, each)


def _doubles(like: Tensor, size: int) -> Tensor:
    return torch.empty(size, dtype=torch.float64, device=like.device)


def _words(tensor: Tensor) -> Tensor:
    """Contiguous bf16 [rows, columns] as int32 words [rows, columns / 2] on the same memory, wherever its storage
    begins."""
    return tensor.view(-1).view(torch.int32).view(tensor.shape[0], -1)


def _operand(gradient: Tensor) -> Any:
    """The dtype of the product. A sign times a bf16 value is exact in both; Triton's interpreter multiplies bf16 as
    integers."""
    return tl.bfloat16 if gradient.dtype == torch.bfloat16 and not _INTERPRETED else tl.float32


def _signed(half: int) -> int:
    return (half ^ 0x80000000) - 0x80000000
