"""Several graphs for one backward pass, which walks through all of them layer by layer.

autograd runs the node that was made last first. Two forward passes, one after the other, would be walked through one
after the other: every gradient of the second would wait for its share of the first, and so all of them would exist at
once. Nodes are numbered in each thread from 0, so each forward pass here runs in a thread of its own, and where a
decoder layer begins its numbers are raised to those that the layer had in the passes before. A layer's gradients are
then complete, and dropped, before the backward pass goes on to the layer below.

A parameter's gradient is the sum of one share a graph, and two shares have one sum. Of three the sum depends on the
order: make two graphs at most.
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
    """Forward passes of `model` for one backward pass. The first should be the one of the most tokens: only later
    ones are raised."""

    def __init__(self, model: nn.Module) -> None:
        self._layers = [
            layer
            for name, held in model.named_modules()
            if isinstance(held, nn.ModuleList) and name.endswith("layers")
            for layer in held
        ]
        self._begins: list[int] = []

    def of(self, forward: Callable[[], Tensor]) -> Tensor:
        """What `forward` gives, with its graph; it multiplies as the calling thread does."""
        mode: AbstractContextManager[object] = _get_current_dispatch_mode() or nullcontext()
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._numbered, forward, mode).result()

    def _numbered(self, forward: Callable[[], Tensor], mode: AbstractContextManager[object]) -> Tensor:
        calls, leaf = count(), torch.zeros((), requires_grad=True)

        def begin(_layer: nn.Module, _given: object) -> None:
            call = next(calls)
            if call == len(self._begins):
                self._begins.append(_next_number())
            while _next_number() < self._begins[call]:
                leaf.view(())  # a node, which keeps nothing

        hooks = [layer.register_forward_pre_hook(begin) for layer in self._layers]
        try:
            with mode:
                return forward()
        finally:
            for hook in hooks:
                hook.remove()


def _next_number() -> int:
    """Of the node that this thread makes next."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number
