"""Updates inside the backward pass: each parameter's as soon as its gradient is complete, which is then freed.

Small gradients are held back until they add up to WAITING_BYTES; gradients in rows are counted until all that a forward
pass announced have come; while gradients are accumulated no parameter is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from apollod.trainer.optim.open_step import OptimizerError
from apollod.trainer.optim.row_gradient import Arrivals, RowGradient

WAITING_BYTES = 1 << 20
"""Most bytes of gradients held back together; a larger one is used at once."""


class HookHandle:
    """The hooks of `NamedOptimizer.attach`; `remove()` detaches them."""

    def __init__(self, hooks: list[torch.utils.hooks.RemovableHandle]) -> None:
        self._hooks = hooks

    def remove(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()


class BackwardUpdates:
    """Calls `update` with a parameter and its gradient. `second`: makes the error for a parameter with a second
    gradient in a step."""

    def __init__(
        self, update: Callable[[Tensor, Tensor | RowGradient], None], second: Callable[[Tensor], OptimizerError]
    ) -> None:
        self._update = update
        self._second = second
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._accumulating = False
        self._arrivals = Arrivals()
        self._held_back: dict[Tensor, None] = {}
        self._held_back_bytes = 0

    @property
    def attached(self) -> bool:
        """True if hooks are in place."""
        return bool(self._hooks)

    def attach(self, parameters: Iterable[Tensor]) -> HookHandle:
        if self._hooks:
            raise OptimizerError("hooks are attached already", "remove() them first")

        def on_gradient(parameter: Tensor) -> None:
            if not self._accumulating and parameter.grad is not None:  # None: the gradient came in rows
                self._update_soon(parameter)

        register = torch.Tensor.register_post_accumulate_grad_hook
        self._hooks += [register(p, on_gradient) for p in parameters]  # type: ignore[no-untyped-call]
        return HookHandle(self._hooks)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        self._accumulating = True
        try:
            yield
        finally:
            self._accumulating = False

    def begin(self) -> None:
        """Drop gradients that an error left held back."""
        self._held_back, self._held_back_bytes = {}, 0

    def finish(self, parameters: Iterable[Tensor]) -> None:
        """Update with gradients left by earlier backward passes to which the last one did not add."""
        if self._hooks:
            for parameter in parameters:
                if parameter.grad is not None:
                    self._update_and_free(parameter)
        for parameter in self._arrivals.complete():
            self._update(parameter, self._arrivals.take(parameter))

    def clear_rows(self) -> None:
        """Forget row gradients, and those that a forward pass announced."""
        self._arrivals.clear()

    def expect_rows(self, parameter: Tensor) -> None:
        self._arrivals.expect(parameter)

    def deliver_rows(self, parameter: Tensor, gradient: RowGradient) -> None:
        if self._arrivals.add(parameter, gradient) and not self._accumulating:
            self._update(parameter, self._arrivals.take(parameter))

    def _update_soon(self, parameter: Tensor) -> None:
        """Update once WAITING_BYTES of gradients have come: a single update between the layers' own work would find its
        code and data out of the processor's caches and take twice as long."""
        if parameter in self._held_back:
            raise self._second(parameter)
        if not self._held_back:  # at the latest when the backward pass ends
            torch.autograd.Variable._execution_engine.queue_callback(self._update_held_back)
        self._held_back[parameter] = None
        assert parameter.grad is not None
        self._held_back_bytes += parameter.grad.nbytes
        if self._held_back_bytes >= WAITING_BYTES:
            self._update_held_back()

    @torch.no_grad()
    def _update_held_back(self) -> None:
        held_back = self._held_back
        self.begin()
        for parameter in held_back:
            self._update_and_free(parameter)

    def _update_and_free(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self._update(parameter, parameter.grad)
        parameter.grad = None
