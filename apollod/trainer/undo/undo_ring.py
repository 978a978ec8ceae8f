"""The last steps, kept so that they can be undone in memory: the undo data of each write (undo_codec.py), and the
optimizer's state.

Law of this file: nothing here changes a bit of a step, and nothing is undone on a guess. The ring knows the fingerprint
between every two of its steps; any other writer of the weights, and a step left half done, must `restart` or `clear`
it.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from apollod.explain import line_of
from apollod.trainer.undo.undo_codec import copied, least_bytes, packable, packed, warm_up
from apollod.trainer.undo.way_back import OnDevice, Packed, Sent

_LACKING = (MemoryError, RuntimeError)  # torch's OutOfMemoryError is a RuntimeError

WRITE_BYTES = 64 << 20
"""most bytes of a weight in device memory to write at once while recording: the old values stay on the device until
they are packed"""

UNKNOWN = ""
"""fingerprint of weights that was not computed"""

_KEPT_WHEN_WRITTEN = frozenset({"master"})
"""state that is not copied before an update, because it is recorded when written, like the weights"""


@dataclass(slots=True)
class _Record:
    """One write: all of `target` (contiguous), or some of its rows."""

    target: Tensor
    back: Packed
    rows: Tensor | Sent | None = None

    def undo(self) -> None:
        if self.rows is None:
            self.back.restore(self.target.view(-1))
            return
        rows = self.rows.values().to(self.target.device) if isinstance(self.rows, Sent) else self.rows
        part = self.target[rows]
        self.back.restore(part.view(-1))
        self.target[rows] = part


@dataclass(slots=True)
class _Copies:
    """Contiguous tensors on CPU, and their old bytes: all state of a parameter in one record."""

    targets: list[Tensor]
    old: list[bytes]

    def undo(self) -> None:
        for target, old in zip(self.targets, self.old, strict=True):
            ctypes.memmove(target.data_ptr(), old, len(old))


@dataclass
class _Step:
    """A step and the situation before it: the fingerprint of the weights, the number of the last step (None: unknown).
    `nbytes` counts settled records."""

    number: int
    before: str
    last: int | None
    records: list[_Record | _Copies] = field(default_factory=list)
    nbytes: int = 0


class ParameterUndo:
    """The changes of one parameter in the open step; part of the step only after `UndoRing.add`.

    failed     reason why something could not be recorded (no memory, for example). It must not affect the update itself
    unsettled  undo data that the device is still making; `nbytes` counts all other data
    taken      memory that the ring's open step already uses, of `budget`. Recording that cannot fit is not even begun:
    a
               copy on the device would be as large as the weight
    """

    def __init__(self, scratch: list[Tensor], taken: int, budget: int) -> None:
        self.records: list[_Record | _Copies] = []
        self.unsettled: list[OnDevice] = []
        self.nbytes = 0
        self.failed = ""
        self._scratch = scratch
        self._taken, self._budget = taken, budget
        self._promised = 0  # least size of unsettled data

    def copy(self, state: Mapping[str, Tensor]) -> None:
        """Copy the optimizer's state before the update."""
        tensors = [tensor for key, tensor in state.items() if key not in _KEPT_WHEN_WRITTEN]
        here = state["t"].is_cpu
        old_bytes = sum(tensor.nbytes for tensor in tensors)
        try:
            if not self._fits(old_bytes if not here or int(state["t"]) else 0):
                return
            if here and int(state["t"]):
                old = [ctypes.string_at(tensor.data_ptr(), tensor.nbytes) for tensor in tensors]
                self.records.append(_Copies(tensors, old))
                self.nbytes += sum(map(len, old))
                return
            for tensor in tensors:  # at the first update, all zero
                self._keep(tensor, copied(tensor, here))
        except _LACKING as error:
            self._fail(error)

    @contextmanager
    def writing(self, *targets: Tensor) -> Iterator[None]:
        """Context for all writes to these contiguous tensors; records them."""
        try:
            fits = self._fits(sum(map(least_bytes, targets)))
            before = [self._before(number, target) for number, target in enumerate(targets)] if fits else []
        except _LACKING as error:
            self._fail(error)
        yield
        if self.failed:
            return
        try:
            for target, old in zip(targets, before, strict=True):
                self._keep(target, old if isinstance(old, Packed) else packed(old, target.view(-1)))
        except _LACKING as error:
            self._fail(error)

    @contextmanager
    def writing_rows(self, rows: Tensor, *targets: Tensor) -> Iterator[None]:
        """Like `writing`, for some rows only: int64 [k] ascending, each once."""
        if rows.is_cpu:  # reading values of a device would wait for it
            first, last = int(rows[0]), int(rows[-1])
            if last - first + 1 == len(rows):
                with self.writing(*(target[first : last + 1] for target in targets)):
                    yield
                return
        try:
            fits = self._fits(sum(rows.nbytes + least_bytes(target[: len(rows)]) for target in targets))
            before = [target[rows] for target in targets] if fits else []
        except _LACKING as error:
            self._fail(error)
        yield
        if self.failed:
            return
        try:
            for target, old in zip(targets, before, strict=True):
                self._keep(target, packed(old.view(-1), target[rows].view(-1)), rows)
        except _LACKING as error:
            self._fail(error)

    def _keep(self, target: Tensor, back: Packed, rows: Tensor | None = None) -> None:
        numbers = Sent(rows) if rows is not None and not rows.is_cpu else rows
        self.records.append(_Record(target, back, numbers))
        for part in (numbers, back):
            if isinstance(part, OnDevice):
                self._hold(part)
            elif part is not None:
                self.nbytes += part.nbytes

    def _hold(self, back: OnDevice) -> None:
        """Keep the newest unsettled data on the device, at most two writes' worth; fetch older ones."""
        self.unsettled.append(back)
        self._promised += back.nbytes
        while len(self.unsettled) > 1 and sum(held.held_bytes for held in self.unsettled) > 2 * WRITE_BYTES:
            first = self.unsettled.pop(0)
            self._promised -= first.nbytes
            first.fetch()
            self.nbytes += first.nbytes

    def _fits(self, least: int) -> bool:
        """True if the budget has room for this much more."""
        needed = self._taken + self.nbytes + self._promised + least
        if needed > self._budget and not self.failed:
            self.failed = _too_much(needed, self._budget)
        return not self.failed

    def _fail(self, error: Exception) -> None:
        self.failed = line_of(error)

    def _before(self, number: int, target: Tensor) -> Tensor | Packed:
        """The target's values, flat and on CPU valid until the next `writing`; or complete undo data, if nothing else
        is needed."""
        if not packable(target):
            return copied(target, maybe_zero=False)
        flat = target.view(-1)
        if not flat.is_cpu:
            return flat.clone()
        while len(self._scratch) <= number:
            self._scratch.append(torch.empty(0, dtype=torch.uint8))
        if self._scratch[number].numel() < flat.nbytes:
            self._scratch[number] = torch.empty(flat.nbytes, dtype=torch.uint8)
        copy = self._scratch[number][: flat.nbytes].view(flat.dtype)
        ctypes.memmove(copy.data_ptr(), flat.data_ptr(), flat.nbytes)
        return copy


def _too_much(needed: int, budget: int) -> str:
    return f"one step alone takes {needed} bytes or more, undo_bytes = {budget} are allowed"


class UndoRing:
    """The undo records of as many of the last steps as fit into `budget` bytes. Used by the optimizer whose `undo` it
    is."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._at = UNKNOWN  # fingerprint of the weights now
        self._last: int | None = None  # number of the last step; None: unknown
        self._steps: deque[_Step] = deque()
        self._complete_bytes = 0  # of all complete steps
        self._open: _Step | None = None
        self._unsettled: list[OnDevice] = []
        self._settled: list[OnDevice] = []
        self._scratch: list[Tensor] = []
        self._given_up = ""
        warm_up()

    def __len__(self) -> int:
        """Number of steps that can be undone."""
        return len(self._steps)

    @property
    def given_up(self) -> str:
        """The reason why no more steps are recorded; empty while they are."""
        return self._given_up

    @property
    def nbytes(self) -> int:
        """Memory in use: steps, and a buffer for a parameter before its update."""
        now = self._open.nbytes if self._open else 0
        return self._complete_bytes + now + sum(scratch.nbytes for scratch in self._scratch)

    @property
    def recording(self) -> bool:
        """True if a step is open whose writes are recorded."""
        return self._open is not None

    def restart(self, fingerprint: str) -> None:
        """Drop every step, and begin again from weights with this fingerprint."""
        self._steps.clear()
        self._complete_bytes = 0
        self._open, self._unsettled, self._settled = None, [], []
        self._at, self._last = fingerprint, None

    def clear(self) -> None:
        """Drop every step, because of another writer."""
        self.restart(UNKNOWN)

    # --- a step ---------------------------------------------------------------------------------------------------

    def begin(self, number: int) -> None:
        """Assign the next writes to this step."""
        if self._open is not None:
            self.clear()  # that one was left half done
        if not self._given_up:
            self._open = _Step(number, self._at, self._last)

    def cancel(self) -> None:
        """Give up the open step, if any, which wrote nothing."""
        self._open = None

    def parameter(self, state: Mapping[str, Tensor]) -> ParameterUndo:
        """Start recording the parameter with this optimizer state, before its update. Only while `recording`."""
        taken = self.nbytes - self._complete_bytes + sum(back.nbytes for back in self._unsettled)
        undo = ParameterUndo(self._scratch, taken, self._budget)
        undo.copy(state)
        return undo

    def add(self, undo: ParameterUndo) -> None:
        """Finish recording a parameter after its update. Older steps make room."""
        assert self._open is not None
        if undo.failed:
            self._give_up(undo.failed)
            return
        self._settle()  # the parameter before this one: by now the device is done with it
        self._open.records += undo.records
        self._unsettled = undo.unsettled
        self._open.nbytes += undo.nbytes
        self._make_room()

    def end(self, fingerprint: str) -> None:
        """The step is complete, and the weights have this fingerprint. Without `begin` there was no step, and nothing
        was written."""
        if self._open is not None:
            self._settle()
            self._settle()  # the last parameter's, too: nothing of a step stays on the device
            self._make_room()
        if self._open is not None:
            self._steps.append(self._open)
            self._complete_bytes += self._open.nbytes
            self._last, self._open = self._open.number, None
        self._at = fingerprint

    def _settle(self) -> None:
        """Settle the undo data of the last parameter, and fetch that of the one before, each when the device has long
        finished it."""
        for back in self._settled:
            back.fetch()
        self._settled, self._unsettled = self._unsettled, []
        for back in self._settled:
            back.settle()
            if self._open is not None:
                self._open.nbytes += back.nbytes

    def _make_room(self) -> None:
        while self._steps and self.nbytes > self._budget:
            self._complete_bytes -= self._steps.popleft().nbytes
        if (needed := self.nbytes) > self._budget:
            self._give_up(_too_much(needed, self._budget))

    def _give_up(self, reason: str) -> None:
        """Stop recording steps."""
        self.clear()
        self._scratch.clear()
        self._given_up = reason
        sys.stderr.write(f"apollod trainer: no step can be undone without a checkpoint any more: {reason}\n")

    # --- undoing --------------------------------------------------------------------------------------------------

    def leads_to(self, step: int, fingerprint: str) -> int | None:
        """The number of steps to undo until `step` is the last one and the weights have this fingerprint; None if the
        ring does not reach back to it. Fingerprints alone cannot decide: a step may leave all weights unchanged."""
        if self._open is not None or fingerprint == UNKNOWN:
            return None
        at, last, count = self._at, self._last, 0
        for past in reversed(self._steps):
            if past.number <= step:
                break
            at, last, count = past.before, past.last, count + 1
        if at != fingerprint or (last is not None and last > step):
            return None
        return count if count or last is not None else None  # the weights match, but the optimizer may be another one

    def undo(self, count: int) -> None:
        """Undo the last `count` steps, the newest first: weights and optimizer state. They cannot be redone."""
        for _ in range(count):
            step = self._steps.pop()
            self._complete_bytes -= step.nbytes
            at, self._at = step.before, UNKNOWN
            for record in reversed(step.records):
                record.undo()
            self._at, self._last = at, step.last
