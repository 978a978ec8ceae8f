"""Several graphs for one backward pass, which walks through all of them layer by layer.

autograd runs the newest node first. Two forward passes, one after the other, would be walked through one after the
other: every gradient of the second would wait for its share of the first, and so all of them would exist at once. Nodes
are numbered in each thread from 0, so each forward pass here runs in a thread of its own. At the beginning of each
decoder layer its numbers are raised to those that the layer had in the passes before, and once more after the last
layer, since linear attention makes more nodes for more tokens. A layer's gradients are then complete, and dropped,
before the backward pass goes on to the layer below, and those of the head before any layer's.

The combination of several graphs needs higher numbers than all of them (`joined`): made in the calling thread, which
may have made hardly any nodes yet, it would run too late.

A parameter's gradient is the sum of one share per graph. The sum of two shares does not depend on their order, that of
three does: make two graphs at most.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import count

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode


class Graphs:
    """Forward passes of `model` for one backward pass. Run the one with the most tokens first: only later ones are
    raised."""

    def __init__(self, model: nn.Module) -> None:
        self._layers = [
            layer
            for name, held in model.named_modules()
            if isinstance(held, nn.ModuleList) and name.endswith("layers")
            for layer in held
        ]
        self._begins: list[int] = []
        self._end = 0

    def of(self, forward: Callable[[], Tensor]) -> Tensor:
        """The result of `forward`, with its graph, computed with the calling thread's dispatch mode."""
        mode: AbstractContextManager[object] = _get_current_dispatch_mode() or nullcontext()
        return _in_a_thread(lambda: self._numbered(forward, mode))

    def joined(self, combine: Callable[[], Tensor]) -> Tensor:
        """The result of `combine`, which combines results of `of`."""

        def after_all() -> Tensor:
            _raise_to(self._end)
            return combine()

        return _in_a_thread(after_all)

    def _numbered(self, forward: Callable[[], Tensor], mode: AbstractContextManager[object]) -> Tensor:
        calls = count()

        def begin(*_given: object) -> None:
            if not torch.is_grad_enabled():
                return  # a forward pass without a graph (`model_ends.large_head`) makes no nodes
            call = next(calls)
            if call == len(self._begins):
                self._begins.append(_next_number())
            _raise_to(self._begins[call])

        hooks = [layer.register_forward_pre_hook(begin) for layer in self._layers]
        hooks += [layer.register_forward_hook(begin) for layer in self._layers[-1:]]
        try:
            with mode:
                return forward()
        finally:
            self._end = max(self._end, _next_number())
            for hook in hooks:
                hook.remove()


def _in_a_thread(make: Callable[[], Tensor]) -> Tensor:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def _raise_to(number: int) -> None:
    """Make nodes, which are dropped at once, until the next one of this thread has this number."""
    leaf = torch.zeros((), requires_grad=True)
    while _next_number() < number:
        leaf.view(())


def _next_number() -> int:
    """Number of the next node that this thread makes."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number
