"""What all optimizers here share: parameters known by name, steps inside the backward pass, rounding, reports, state.

Law of this file: random streams and state are keyed by a parameter's Hugging Face name and by the number of the step, so
that a result depends neither on the order of parameters nor on the memory that holds them. A parameter's gradient is used
whole or not at all: where it is zero or not finite, weight and state stay as they are.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from apollod.errors import ApolloError
from apollod.trainer.moments import Norms
from apollod.trainer.parameter_step import ParameterStep
from apollod.trainer.row_gradient import Arrivals, RowGradient
from apollod.trainer.undo import ParameterUndo, UndoRing

Named = Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
"""(Hugging Face name, Parameter) pairs, or groups {"params": pairs, option: value}"""

WAITING_BYTES = 1 << 20
"""Gradients that may wait for others, all together; a larger one is used at once."""

STATE_VERSION = 1
"""Of what state means. Another one is refused, here and by checkpoints."""


class OptimizerError(ApolloError, ValueError):
    """A parameter, an option or a call that the optimizer cannot work with."""


class StateRefused(OptimizerError):
    """Optimizer state of another model, optimizer, rank, shape, dtype or version."""

    def __init__(self, what: str, saved: object, here: object) -> None:
        super().__init__(
            f"optimizer state does not fit: {what} is {saved} in the saved state and {here} here",
            "load the state that was saved with this model and these settings, or start with a fresh optimizer",
        )


@dataclass(frozen=True)
class StepReport:
    """What one step did. Sums run in the order of names, so they do not depend on the order of the backward pass."""

    updated: int
    skipped_zero: int
    skipped_nonfinite: int
    update_norm: float
    """Euclidean norm, over all updated parameters, of the update before lr (bias correction, scale and limiter included)."""
    grad_norm: float
    """Euclidean norm of the gradients of all updated parameters."""
    skipped: list[str]
    """Names of parameters with a zero or non-finite gradient: neither weights nor state were touched."""


def second_gradient(name: str, step: int) -> OptimizerError:
    """What a parameter that fires twice in a step is refused with."""
    return OptimizerError(f"{name} got a second gradient in step {step}", "run one backward pass a step")


def dense(name: str, gradient: Tensor) -> Tensor:
    """The gradient, contiguous and out of the graph; raises OptimizerError for a sparse one."""
    if gradient.layout != torch.strided:
        raise OptimizerError(f"the gradient of {name} is sparse; only dense gradients are supported")
    return gradient.detach().contiguous()


@dataclass
class _Tally:
    """Running account of one step, keyed by name."""

    step: int
    squares: dict[str, tuple[float, float]] = field(default_factory=dict)  # of update and gradient; updated parameters
    zero: list[str] = field(default_factory=list)
    nonfinite: list[str] = field(default_factory=list)
    fired: set[str] = field(default_factory=set)

    def take(self, name: str) -> None:
        """A parameter's gradient is here; raises OptimizerError for its second one."""
        if name in self.fired:
            raise second_gradient(name, self.step)
        self.fired.add(name)

    def report(self) -> StepReport:
        ordered = [self.squares[name] for name in sorted(self.squares)]
        update_norm, grad_norm = (math.sqrt(sum(square[i] for square in ordered)) for i in (0, 1))
        skipped = sorted(self.zero + self.nonfinite)
        return StepReport(len(ordered), len(self.zero), len(self.nonfinite), update_norm, grad_norm, skipped)


@dataclass(frozen=True)
class _Unit:
    """One parameter, known by its Hugging Face name, whatever memory holds it."""

    name: str
    group: dict[str, Any]
    round_to: torch.dtype


class HookHandle:
    """The hooks of `NamedOptimizer.attach`; `remove()` takes them off again."""

    def __init__(self, hooks: list[torch.utils.hooks.RemovableHandle]) -> None:
        self._hooks = hooks

    def remove(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()


class NamedOptimizer(torch.optim.Optimizer):
    """Base: a normal `torch.optim.Optimizer`, or, between `attach` and `remove`, one that steps inside the backward pass.

    params    see `Named`; names key the random streams and the state. bf16 or float32, contiguous
    options   defaults of the groups; `lr`, `weight_decay` (decoupled) and `rounding` among them
    seed      of the run
    round_to  {name: torch.bfloat16} for float32 weights that must stay on the bf16 grid (status `cast`)

    rounding "stochastic" | "nearest" | "master", of bf16 weights; float32 weights are not rounded. "master" keeps a float32
    copy, taken from the weight at its first update, and rounds that to the nearest.

    State a parameter: what the subclass needs, t int64 [] (applied updates) and, where asked for, master float32 of the
    parameter's shape. Allocated here, so that a lack of memory shows at once. Raises OptimizerError for parameters and
    options that cannot work.
    """

    NAME: ClassVar[str]
    SHAPING: ClassVar[tuple[str, ...]] = ()
    """options that shapes and dtypes of the state follow from"""

    def __init__(
        self, params: Named, options: dict[str, Any], seed: int, round_to: Mapping[str, torch.dtype] | None
    ) -> None:
        self.last_report: StepReport | None = None
        self.undo: UndoRing | None = None  # keeps the steps; its owner says `end` after each
        self._seed = seed
        self._next_step = 1
        self._tally: _Tally | None = None
        self._round_to = dict(round_to or {})
        self._units: dict[Tensor, _Unit] = {}
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._accumulating = False
        self._arrivals = Arrivals()
        self._waiting: dict[Tensor, None] = {}
        self._waiting_bytes = 0
        super().__init__(params, options)
        if unknown := self._round_to.keys() - {unit.name for unit in self._units.values()}:
            raise OptimizerError(f"round_to names parameters that are not optimized: {sorted(unknown)}")

    @abstractmethod
    def _new_state(self, parameter: Tensor, group: Mapping[str, Any]) -> dict[str, Tensor]:
        """State of a parameter that has had no update; `t` and `master` come on top."""

    @abstractmethod
    def _apply(self, step: ParameterStep, gradient: Tensor) -> Norms:
        """Update weight and state of one parameter, or neither. Norms: of the gradient, and of the update before lr.
        gradient: contiguous, bf16 or float32, of the weight's shape; not to be changed."""

    def _apply_rows(self, step: ParameterStep, gradient: RowGradient) -> Norms:
        """`_apply`, to the same bits, of a parameter for which `takes_rows` is true."""
        raise NotImplementedError

    def _in_range(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Whether each option of a group has a value that can work."""
        return {
            "lr": 0 <= group["lr"] < math.inf,
            "weight_decay": 0 <= group["weight_decay"] < math.inf,
            "rounding": group["rounding"] in ("stochastic", "nearest", "master"),
        }

    def _check_options(self, group: Mapping[str, Any]) -> None:
        wrong = [f"{name} = {group[name]!r} is out of range" for name, right in self._in_range(group).items() if not right]
        if wrong:
            raise OptimizerError("; ".join(wrong))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add {"params": (name, Parameter) pairs, option: value} and allocate its state; or raise and change nothing."""
        if self._hooks:
            raise OptimizerError("hooks are attached to the parameters so far", "remove() them, add the group, attach again")
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check_options(group)
            if "param_names" not in group:
                raise OptimizerError("parameters have no names", "pass model.named_parameters(), not model.parameters()")
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                self._adopt(name, parameter, group)
        except BaseException:
            self.param_groups.pop()
            for parameter in group["params"]:
                self._units.pop(parameter, None)
                self.state.pop(parameter, None)
            raise

    def _adopt(self, name: str, parameter: Tensor, group: dict[str, Any]) -> None:
        dtype, target = parameter.dtype, self._round_to.get(name, parameter.dtype)
        if any(unit.name == name for unit in self._units.values()):
            raise OptimizerError(f"two parameters are named {name!r}")
        if parameter in self._units:
            raise OptimizerError(f"{name!r} is the parameter {self._units[parameter].name!r}", "give a tied parameter once")
        if dtype not in (torch.bfloat16, torch.float32):
            raise OptimizerError(f"{name} is {dtype}; weights must be bfloat16 or float32")
        if target != dtype and (dtype, target) != (torch.float32, torch.bfloat16):
            raise OptimizerError(f"{name} is {dtype} and cannot be rounded to {target}; only float32 to bfloat16")
        if not parameter.is_contiguous():
            raise OptimizerError(f"{name} is not contiguous (shape {tuple(parameter.shape)}, strides {parameter.stride()})")
        self._units[parameter] = _Unit(name, group, target)
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

    def begin(self, step: int, lr: float | None = None) -> None:
        """Open a step; with `lr`, set that learning rate in every group. Forgets a step that an error left open."""
        self.set_step(step)
        if lr is not None:
            for group in self.param_groups:
                group["lr"] = lr
                self._check_options(group)
        self._tally = _Tally(step)
        self._waiting, self._waiting_bytes = {}, 0
        if self.undo is not None:
            self.undo.begin(step)

    def warm_up(self) -> None:
        """Do now what the first step would have to wait for, such as compiling. Weights and state keep their bits."""

    def attach(self) -> HookHandle:
        """Update every parameter inside the backward pass, as soon as its gradient is complete or, if that is small, those of
        some others are, too; and free the gradient.

        Between `begin` and `finish` run exactly one backward pass: a parameter that fires twice (gradient accumulation,
        reentrant checkpointing) would be updated between its uses, so the second firing raises OptimizerError.
        """
        if self._hooks:
            raise OptimizerError("hooks are attached already", "remove() them first")

        def on_gradient(parameter: Tensor) -> None:
            if not self._accumulating and parameter.grad is not None:  # None: it came in rows
                self._update_soon(parameter)

        register = torch.Tensor.register_post_accumulate_grad_hook
        self._hooks += [register(p, on_gradient) for p in self._units]  # type: ignore[no-untyped-call]
        return HookHandle(self._hooks)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Backward passes in here leave their gradients, added up by autograd in the parameter's dtype; the next one outside
        adds its own and updates by the sum. Until then all gradients exist at once. `zero_grad` drops them."""
        self._accumulating = True
        try:
            yield
        finally:
            self._accumulating = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's; drops row gradients, too, and those that a forward pass announced."""
        super().zero_grad(set_to_none)
        self._arrivals.clear()

    # --- row gradients: see row_gradient.RowSink ------------------------------------------------------------------

    def takes_rows(self, parameter: Tensor) -> bool:
        """Whether `_apply_rows` can do with this parameter; only ever inside the backward pass."""
        return False

    def _rows_will_do(self, parameter: Tensor) -> bool:
        """`takes_rows` of optimizers that can do with the rows of any bf16 matrix."""
        known = parameter in self._units and bool(self._hooks)
        return known and parameter.dim() == 2 and parameter.dtype == torch.bfloat16

    def expect_rows(self, parameter: Tensor) -> None:
        self._arrivals.expect(parameter)

    def deliver_rows(self, parameter: Tensor, gradient: RowGradient) -> None:
        if self._arrivals.add(parameter, gradient) and not self._accumulating:
            self._update(parameter, self._arrivals.take(parameter))

    def finish(self) -> StepReport:
        """Close the open step and return its report, which is also kept as `last_report`."""
        if self._hooks:
            for parameter in self._units:  # of an earlier backward pass, and not part of the last one
                if parameter.grad is not None:
                    self._update_and_free(parameter)
        for parameter in self._arrivals.waiting():
            self._update(parameter, self._arrivals.take(parameter))
        report = self._open().report()
        self._next_step = self._open().step + 1
        self._tally, self.last_report = None, report
        return report

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the closure's loss, or None without one."""
        self.begin(self._next_step)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for parameter in self._units:
            if parameter.grad is not None:
                self._update(parameter, parameter.grad)
        self.finish()
        return loss

    def _open(self) -> _Tally:
        if self._tally is None:
            raise OptimizerError("no step is open", "call begin(step, lr) before the backward pass")
        return self._tally

    def _update_soon(self, parameter: Tensor) -> None:
        """Update it when WAITING_BYTES of gradients are together: alone, between the layers' own work, it would find nothing of
        ours in the processor's caches and take twice as long."""
        if parameter in self._waiting:
            raise second_gradient(self._units[parameter].name, self._open().step)
        if not self._waiting:  # at the latest when the backward pass ends
            torch.autograd.Variable._execution_engine.queue_callback(self._update_waiting)
        self._waiting[parameter] = None
        assert parameter.grad is not None
        self._waiting_bytes += parameter.grad.nbytes
        if self._waiting_bytes >= WAITING_BYTES:
            self._update_waiting()

    @torch.no_grad()
    def _update_waiting(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for parameter in waiting:
            self._update_and_free(parameter)

    def _update_and_free(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self._update(parameter, parameter.grad)
        parameter.grad = None

    def _update(self, parameter: Tensor, gradient: Tensor | RowGradient) -> None:
        """Update one parameter. Weights are written through `.data`: autograd counts versions a storage, not a view, and
        would take a write to one slice of a merged weight for a change to all of them."""
        unit, tally, state = self._units[parameter], self._open(), self.state[parameter]
        name, t = unit.name, int(state["t"]) + 1
        tally.take(name)
        undo = self._undo_of(parameter)
        step = ParameterStep(name, unit.group, parameter.data, unit.round_to, state, self._seed, tally.step, t, undo)
        if isinstance(gradient, RowGradient):
            norms = self._apply_rows(step, gradient)
        else:
            norms = self._apply(step, dense(name, gradient))
        if norms.zero or norms.nonfinite:
            (tally.zero if norms.zero else tally.nonfinite).append(name)
            return
        state["t"].fill_(t)
        tally.squares[name] = (norms.update**2, norms.grad_square)
        if self.undo is not None and undo is not None:
            self.undo.add(undo)

    def _undo_of(self, parameter: Tensor) -> ParameterUndo | None:
        """With a copy of its state; to be asked before it is updated."""
        return self.undo.parameter(self.state[parameter]) if self.undo is not None and self.undo.recording else None

    # --- state ----------------------------------------------------------------------------------------------------

    def state_tensors(self) -> dict[str, Tensor]:
        """{"<name>.<field>": tensor}, fit for safetensors. Live: the next step changes the tensors."""
        return {f"{unit.name}.{key}": tensor for p, unit in self._units.items() for key, tensor in self.state[p].items()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor], strict: bool = True) -> None:
        """Copy in what `state_tensors` gave. Nothing is written unless everything fits, and nothing is ever cast.

        Raises StateRefused where a shape or dtype differs or, if `strict`, where a tensor is missing or unknown.
        Not strict: unknown tensors are ignored, and a parameter without saved tensors keeps its state; the others need all.
        """
        saved_parameters = {name.rpartition(".")[0] for name in tensors}
        own = {name: t for name, t in self.state_tensors().items() if strict or name.rpartition(".")[0] in saved_parameters}
        shared = own.keys() & tensors.keys()
        for name in sorted(shared):
            saved, here = tensors[name], own[name]
            if saved.shape != here.shape:
                raise StateRefused(f"the shape of {name}", tuple(saved.shape), tuple(here.shape))
            if saved.dtype != here.dtype:
                raise StateRefused(f"the dtype of {name}", saved.dtype, here.dtype)
        if own.keys() - tensors.keys() or (strict and tensors.keys() - own.keys()):
            missing, unknown = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
            differ = f"({len(missing)} missing, {len(unknown)} unknown, such as {(missing or unknown)[0]})"
            raise StateRefused(f"the set of tensors {differ}", f"{len(tensors)} tensors", f"{len(own)} tensors")
        for name in shared:
            own[name].copy_(tensors[name])

    def state_dict(self) -> dict[str, Any]:
        """State, options, seed and next step: tensors and plain values only, so `torch.load(weights_only=True)` reads it.

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
        """Restore what `state_dict` gave, options and seed included. (torch's would cast the moments to the weights' dtype.)
        Raises StateRefused, with nothing changed, where optimizer, version, groups, ranks, shapes or dtypes differ."""
        groups = state_dict.get("param_groups", [])
        for what, here in (("optimizer", self.NAME), ("version", STATE_VERSION)):
            if state_dict.get(what) != here:
                raise StateRefused(f"the {what}", state_dict.get(what), here)
        if len(groups) != len(self.param_groups):
            raise StateRefused("the number of parameter groups", len(groups), len(self.param_groups))
        for saved, group in zip(groups, self.param_groups, strict=True):
            for option in self.SHAPING:
                if saved[option] != group[option]:
                    raise StateRefused(f"the {option}", saved[option], group[option])
            if (saved["rounding"] == "master") != (group["rounding"] == "master"):
                raise StateRefused("the rounding", saved["rounding"], group["rounding"])
        self.load_state_tensors(state_dict["state"])
        for saved, group in zip(groups, self.param_groups, strict=True):
            group.update({key: value for key, value in saved.items() if key != "param_names"})
        self._seed, self._next_step = state_dict["seed"], state_dict["next_step"]

    def state_bytes(self) -> int:
        """Bytes of optimizer state, all parameters together."""
        return sum(tensor.nbytes for tensor in self.state_tensors().values())

