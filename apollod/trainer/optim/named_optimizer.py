"""The base of all optimizers here: parameters known by name, steps, state.

Law of this file: random streams and state are keyed by a parameter's Hugging Face name and by the number of the step,
so that a result depends neither on the order of parameters nor on the memory that holds them. A parameter's gradient is
used whole or not at all: where it is zero or not finite, weight and state stay as they are.
"""

from __future__ import annotations

import math
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from apollod.core.settings import OptimizerSettings
from apollod.trainer.optim.backward_updates import BackwardUpdates, HookHandle
from apollod.trainer.optim.moments import Norms
from apollod.trainer.optim.open_step import (
    Backend,
    FormulaStep,
    NamedParameter,
    OpenStep,
    OptimizerError,
    ParameterStep,
    StepReport,
    second_gradient,
)
from apollod.trainer.optim.row_gradient import RowGradient
from apollod.trainer.undo.undo_ring import UndoRing

STATE_VERSION = 1
"""Version of the meaning of state. Another one is refused, here and by checkpoints."""

Named = Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
"""(Hugging Face name, Parameter) pairs, or groups {"params": pairs, option: value}"""


class StateRefused(OptimizerError):
    """Optimizer state of another model, optimizer, rank, shape, dtype or version."""

    def __init__(self, what: str, saved: object, here: object) -> None:
        super().__init__(
            f"optimizer state does not fit: {what} is {saved} in the saved state and {here} here",
            "load the state that was saved with this model and these settings, or start with a fresh optimizer",
        )


class NamedOptimizer(torch.optim.Optimizer):
    """Base: a normal `torch.optim.Optimizer`, or, between `attach` and `remove`, one that steps inside the backward
    pass.

    params    see `Named`; names key the random streams and the state. bf16 or float32, contiguous
    options   defaults of the groups; `lr`, `weight_decay` (decoupled) and `rounding` among them
    seed      of the run
    round_to  {name: torch.bfloat16} for float32 weights that must stay on the bf16 grid (status `cast`)

    rounding "stochastic" | "nearest" | "master", of bf16 weights; float32 weights are not rounded. "master" keeps a
    float32 copy, taken from the weight at its first update, and rounds that to the nearest.

    State a parameter: what the subclass needs, t int64 [] (applied updates) and, where asked for, master float32 of the
    parameter's shape. Allocated here, so that a lack of memory shows at once. Raises OptimizerError for parameters and
    options that cannot work.
    """

    NAME: ClassVar[str]
    """in configuration, journals and checkpoints; never renamed"""
    SHAPING: ClassVar[tuple[str, ...]] = ()
    """options that determine shapes and dtypes of the state"""
    DEPENDS_ON: ClassVar[tuple[str, ...]] = ()
    """settings that the state depends on; the others may change from one run to the next"""
    KERNELS: ClassVar[bool] = False
    """its updates exist in Triton, too"""
    LIBRARIES: ClassVar[tuple[str, ...]] = ()
    """packages that only this optimizer needs"""

    def __init__(
        self, params: Named, options: dict[str, Any], seed: int, round_to: Mapping[str, torch.dtype] | None
    ) -> None:
        self.last_report: StepReport | None = None
        self.updates = 0  # updates of parameters begun so far; unchanged: nothing was written
        self.undo: UndoRing | None = None  # records the steps; its owner calls `end` after each
        self._seed = seed
        self._next_step = 1
        self._open_step: OpenStep | None = None
        this = weakref.proxy(self)  # no reference cycle: a dropped optimizer frees its state at once
        self._backend: Backend = lambda step, seed, parameters, groups: FormulaStep(step, seed, this)
        self._round_to = dict(round_to or {})
        self._named: dict[Tensor, NamedParameter] = {}
        self._backward = BackwardUpdates(
            lambda parameter, gradient: this._update(parameter, gradient),
            lambda parameter: second_gradient(this._named[parameter].name, this._open().step),
        )
        super().__init__(params, options)
        if unknown := self._round_to.keys() - {known.name for known in self._named.values()}:
            raise OptimizerError(f"round_to names parameters that are not optimized: {sorted(unknown)}")

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: OptimizerSettings, params: Sequence[tuple[str, Tensor]], **common: Any) -> Self:
        """The optimizer that `[trainer]` configures. `common`: weight_decay, seed, rounding, round_to and, if it has
        `KERNELS`, kernels. Raises OptimizerError for settings that cannot work with these parameters."""

    @abstractmethod
    def _new_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Tensor]:
        """Initial state of a parameter, without `t` and `master`."""

    @abstractmethod
    def _apply(self, step: ParameterStep, gradient: Tensor | RowGradient) -> Norms:
        """Update weight and state of one parameter, or neither. Norms: of the gradient, and of the update before lr.

        gradient: contiguous, bf16 or float32, of the weight's shape; must not be changed. In rows, and then with the
        same bits, only for a parameter whose `takes_rows` is true.
        """

    def _in_range(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """True for each option of a group with a valid value."""
        return {
            "lr": 0 <= group["lr"] < math.inf,
            "weight_decay": 0 <= group["weight_decay"] < math.inf,
            "rounding": group["rounding"] in ("stochastic", "nearest", "master"),
        }

    def _check_options(self, group: Mapping[str, Any]) -> None:
        wrong = [
            f"{name} = {group[name]!r} is out of range" for name, right in self._in_range(group).items() if not right
        ]
        if wrong:
            raise OptimizerError("; ".join(wrong))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add {"params": (name, Parameter) pairs, option: value} and its state; or raise and change nothing."""
        if self._backward.attached:
            raise OptimizerError(
                "hooks are attached to the parameters so far", "remove() them, add the group, attach again"
            )
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check_options(group)
            if "param_names" not in group:
                raise OptimizerError(
                    "parameters have no names", "pass model.named_parameters(), not model.parameters()"
                )
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                self._adopt(name, parameter, group)
        except BaseException:
            self.param_groups.pop()
            for parameter in group["params"]:
                self._named.pop(parameter, None)
                self.state.pop(parameter, None)
            raise

    def _adopt(self, name: str, parameter: Tensor, group: dict[str, Any]) -> None:
        dtype, target = parameter.dtype, self._round_to.get(name, parameter.dtype)
        if any(known.name == name for known in self._named.values()):
            raise OptimizerError(f"two parameters are named {name!r}")
        if parameter in self._named:
            raise OptimizerError(
                f"{name!r} is the parameter {self._named[parameter].name!r}", "give a tied parameter once"
            )
        if dtype not in (torch.bfloat16, torch.float32):
            raise OptimizerError(f"{name} is {dtype}; weights must be bfloat16 or float32")
        if target != dtype and (dtype, target) != (torch.float32, torch.bfloat16):
            raise OptimizerError(f"{name} is {dtype} and cannot be rounded to {target}; only float32 to bfloat16")
        if not parameter.is_contiguous():
            raise OptimizerError(
                f"{name} is not contiguous (shape {tuple(parameter.shape)}, strides {parameter.stride()})"
            )
        self._named[parameter] = NamedParameter(name, group, target)
        state = self._new_state(parameter, group)
        state["t"] = torch.zeros((), dtype=torch.int64, device=parameter.device)
        if group["rounding"] == "master" and target == torch.bfloat16:
            state["master"] = torch.zeros(parameter.shape, dtype=torch.float32, device=parameter.device)
        self.state[parameter] = state

    # --- steps ----------------------------------------------------------------------------------------------------

    def set_step(self, step: int) -> None:
        """Give the next step this number (from 1). It keys the random streams."""
        if step < 1:
            raise OptimizerError(f"steps are numbered from 1, not {step}")
        self._next_step = step

    def begin(self, step: int, lr: float | None = None, known_as: int = 0) -> None:
        """Open a step with the random streams of number `step`; with `lr`, set that learning rate in every group.
        `known_as`: its number for undoing (0: the same). Drops a step that an error left open."""
        self.set_step(step)
        if lr is not None:
            for group in self.param_groups:
                group["lr"] = lr
                self._check_options(group)
        self._open_step = self._backend(step, self._seed, self._named.values(), self.param_groups)
        self._backward.begin()
        if self.undo is not None:
            self.undo.begin(known_as or step)

    def abandon(self) -> None:
        """Give up a step that failed before its first update (see `updates`): its gradients are dropped, and the next
        step begins as if it had never been."""
        self.zero_grad()
        self._open_step = None
        self._backward.begin()
        if self.undo is not None:
            self.undo.cancel()

    def applied(self) -> int:
        """Number of updates since the moments were zero: the largest of all parameters. On a GPU this waits for it."""
        counts = [state["t"] for state in self.state.values()]
        return int(torch.stack(counts).max()) if counts else 0

    def warm_up(self) -> None:
        """Do the slow preparations of the first step, such as compiling. Weights and state keep their bits."""

    def attach(self) -> HookHandle:
        """Update every parameter inside the backward pass, as soon as its gradient is complete or, for a small one,
        enough others are, too; and free the gradient.

        Between `begin` and `finish` run exactly one backward pass: a parameter that fires twice (gradient accumulation,
        reentrant gradient checkpointing) would be updated between its uses, so the second firing raises OptimizerError.
        """
        return self._backward.attach(self._named)

    def accumulating(self) -> AbstractContextManager[None]:
        """Backward passes within this context keep their gradients, summed by autograd in the parameter's dtype; the
        next one outside adds its own and updates by the sum. Until then all gradients exist at once. `zero_grad` drops
        them."""
        return self._backward.accumulating()

    @contextmanager
    def trying(self, step: OpenStep) -> Iterator[None]:
        """Within this context, pass every gradient of backward passes to `step`, as soon as it is complete, and free
        it. Nothing is written unless `step` does."""
        self._open_step = step
        self._backward.begin()
        try:
            yield
            self._backward.finish(self._named)
        finally:
            self._open_step = None
            self._backward.begin()
            self.zero_grad()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Like torch's; also drops row gradients, and the announcements of a forward pass."""
        super().zero_grad(set_to_none)
        self._backward.clear_rows()

    # --- row gradients: see row_gradient.RowSink ------------------------------------------------------------------

    def takes_rows(self, parameter: Tensor) -> bool:
        """True if `_apply` takes this parameter's gradient in rows, only within the backward pass: any bf16 matrix."""
        known = parameter in self._named and self._backward.attached
        return known and parameter.dim() == 2 and parameter.dtype == torch.bfloat16

    def expect_rows(self, parameter: Tensor) -> None:
        self._backward.expect_rows(parameter)

    def deliver_rows(self, parameter: Tensor, gradient: RowGradient) -> None:
        self._backward.deliver_rows(parameter, gradient)

    def finish(self, queued: Callable[[], object] = lambda: None) -> StepReport:
        """Close the open step and return its report, also kept as `last_report`. `queued` is called once all updates
        are made or queued, before waiting for a device."""
        self._backward.finish(self._named)
        queued()
        report = self._open().report()
        self._next_step = self._open().step + 1
        self._open_step, self.last_report = None, report
        return report

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the closure's loss, or None without one."""
        self.begin(self._next_step)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for parameter in self._named:
            if parameter.grad is not None:
                self._update(parameter, parameter.grad)
        self.finish()
        return loss

    def _open(self) -> OpenStep:
        if self._open_step is None:
            raise OptimizerError("no step is open", "call begin(step, lr) before the backward pass")
        return self._open_step

    def _update(self, parameter: Tensor, gradient: Tensor | RowGradient) -> None:
        """Update one parameter. Weights are written through `.data`: autograd counts versions per storage, not per
        view, and would take a write to one slice of a merged weight for a change to all of them."""
        self.updates += 1
        self._open().update(self._named[parameter], parameter.data, gradient, self.state[parameter], self.undo)

    # --- state ----------------------------------------------------------------------------------------------------

    def state_tensors(self) -> dict[str, Tensor]:
        """{"<name>.<field>": tensor}, suitable for safetensors. Live: the next step changes the tensors."""
        return {
            f"{known.name}.{key}": tensor for p, known in self._named.items() for key, tensor in self.state[p].items()
        }

    def load_state_tensors(self, tensors: Mapping[str, Tensor], strict: bool = True) -> None:
        """Copy in the result of `state_tensors`, all or nothing: see `_load_tensors`. Raises StateRefused."""
        _load_tensors(self.state_tensors(), tensors, strict)

    def state_dict(self) -> dict[str, Any]:
        """State, options, seed and next step: tensors and plain values only, so `torch.load(weights_only=True)` reads
        it.

        Unlike torch's, it is keyed by name. Tensors are live, as torch's are.
        """
        return {
            "optimizer": self.NAME,
            "version": STATE_VERSION,
            "seed": self._seed,
            "next_step": self._next_step,
            "state": self.state_tensors(),
            "param_groups": [{k: v for k, v in group.items() if k != "params"} for group in self.param_groups],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`, options and seed included. (torch's would cast the moments to the
        weights' dtype.) Raises StateRefused, with nothing changed, if optimizer, version, groups, ranks, shapes or
        dtypes differ."""
        _check_options(state_dict, self.NAME, self.SHAPING, self.param_groups)
        self.load_state_tensors(state_dict["state"])
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=True):
            group.update({key: value for key, value in saved.items() if key != "param_names"})
        self._seed, self._next_step = state_dict["seed"], state_dict["next_step"]

    def state_bytes(self) -> int:
        """Bytes of optimizer state, all parameters together."""
        return sum(tensor.nbytes for tensor in self.state_tensors().values())


# --- saved state --------------------------------------------------------------------------------------------------


def _load_tensors(here: Mapping[str, Tensor], tensors: Mapping[str, Tensor], strict: bool) -> None:
    """Copy `tensors` into those of the same names `here` ("<parameter>.<field>"); nothing is ever cast.

    Raises StateRefused if a shape or dtype differs or, if `strict`, if a tensor is missing or unknown. Not strict:
    unknown tensors are ignored, and a parameter without any saved tensor keeps its state; the others need all of
    theirs.
    """
    saved_parameters = {name.rpartition(".")[0] for name in tensors}
    own = {name: t for name, t in here.items() if strict or name.rpartition(".")[0] in saved_parameters}
    shared = own.keys() & tensors.keys()
    for name in sorted(shared):
        saved, live = tensors[name], own[name]
        if saved.shape != live.shape:
            raise StateRefused(f"the shape of {name}", tuple(saved.shape), tuple(live.shape))
        if saved.dtype != live.dtype:
            raise StateRefused(f"the dtype of {name}", saved.dtype, live.dtype)
    if own.keys() - tensors.keys() or (strict and tensors.keys() - own.keys()):
        missing, unknown = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
        differ = f"({len(missing)} missing, {len(unknown)} unknown, such as {(missing or unknown)[0]})"
        raise StateRefused(f"the set of tensors {differ}", f"{len(tensors)} tensors", f"{len(own)} tensors")
    for name in shared:
        own[name].copy_(tensors[name])


def _check_options(
    saved: Mapping[str, Any], optimizer: str, shaping: Sequence[str], groups: Sequence[Mapping[str, Any]]
) -> None:
    """Raise StateRefused unless state saved by `NamedOptimizer.state_dict` is of this optimizer, with groups of the
    same kind."""
    saved_groups = saved.get("param_groups", [])
    for what, here in (("optimizer", optimizer), ("version", STATE_VERSION)):
        if saved.get(what) != here:
            raise StateRefused(f"the {what}", saved.get(what), here)
    if len(saved_groups) != len(groups):
        raise StateRefused("the number of parameter groups", len(saved_groups), len(groups))
    for theirs, group in zip(saved_groups, groups, strict=True):
        for option in shaping:
            if theirs[option] != group[option]:
                raise StateRefused(f"the {option}", theirs[option], group[option])
        if (theirs["rounding"] == "master") != (group["rounding"] == "master"):
            raise StateRefused("the rounding", theirs["rounding"], group["rounding"])
